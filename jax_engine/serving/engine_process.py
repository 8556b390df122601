"""The engine's process: `python -m jax_engine.serving.engine_process ADDRESS`.

`EngineClient` starts it. It connects to two sockets under ADDRESS, reads its settings, builds the
engine, and runs it until it is told to stop, or until the process that started it is gone.
"""

import logging
import os
import sys
import threading
import time
from dataclasses import replace
from functools import partial

import zmq

from jax_engine.config.engine_config import EngineConfig
from jax_engine.engine.engine_loop import EngineLoop
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.startup.device_settings import resolve_dtype
from jax_engine.errors import JaxEngineError
from jax_engine.operations import this_device
from jax_engine.processes.child_process import ActiveTime, Context, connect, live_as_child
from jax_engine.processes.placement import ANYWHERE, bind_to_cores
from jax_engine.serving.engine_server import EngineServer
from jax_engine.serving.messages import (
    COMMANDS,
    REPORTS,
    Heartbeat,
    Ready,
    Report,
    Settings,
    StartFailed,
    Stop,
    decode_command,
    encode,
)

logger = logging.getLogger("jax_engine")
BEAT_S = 0.5


def main(address: str) -> int:
    """Runs the process; returns its exit status."""
    live_as_child(address)
    context, of_commands = Context(), Context()
    commands = connect(of_commands, zmq.PULL, f"{address}/{COMMANDS}")
    reports = connect(context, zmq.PUSH, f"{address}/{REPORTS}")
    try:
        status = _run(commands, reports, address)
    finally:
        context.destroy(linger=1000)
    if status != 0:
        # A thread may wait for commands still: libzmq aborts if its socket is closed meanwhile.
        os._exit(status)
    of_commands.destroy(linger=0)
    return status


def _run(commands: "zmq.Socket[bytes]", reports: "zmq.Socket[bytes]", address: str) -> int:
    def send(report: Report) -> None:
        reports.send(encode(report))

    settings = decode_command(commands.recv())
    assert isinstance(settings, Settings)
    os.environ.update(settings.environment)
    bind_to_cores(settings.cores)
    try:
        config = served(EngineConfig.from_settings(**settings.settings))
        engine = LLMEngine.from_config(config, ANYWHERE._replace(rank=settings.rank))
    except JaxEngineError as error:
        send(StartFailed(type(error).__name__, str(error)))
        return 1
    server = EngineServer(engine, send)
    send(_ready(engine))
    threading.Thread(target=_receive, args=(commands, server), daemon=True).start()
    threading.Thread(target=_beat, args=(address, server.loop), daemon=True).start()
    server.loop.run()
    return 0 if server.loop.died is None else 1


def served(config: EngineConfig) -> EngineConfig:
    """The settings with the device's number of tokens for a server's step.

    A number that the user chose stays. Steps that hold whole prompts stay as long as those are.
    """
    if config.max_num_batched_tokens is not None or not config.chunked_prefill:
        return config
    tokens = max(this_device().served_tokens, config.max_num_seqs)
    return replace(config, max_num_batched_tokens=tokens)


def _ready(engine: LLMEngine) -> Ready:
    config = engine.config
    head = None if engine.head is None else engine.head.config
    return Ready(
        model=config.model or str(engine.model_source),
        source=str(engine.model_source),
        vocab_size=engine.model_config.vocab_size,
        max_model_len=engine.max_model_len,
        num_gpu_blocks=engine.memory.num_blocks,
        block_size=config.block_size,
        head_task=None if head is None else head.task,
        labels=[] if head is None else list(head.labels),
        token_types=engine.model_config.spec.token_types or 0,
        is_encoder=engine.model_config.spec.is_encoder,
        width=engine.model_config.spec.width,
        dtype=resolve_dtype(config.dtype).name,
    )


def _receive(commands: "zmq.Socket[bytes]", server: EngineServer) -> None:
    while True:
        command = decode_command(commands.recv())
        assert not isinstance(command, Settings)
        server.receive(command)
        if isinstance(command, Stop):
            return


def _beat(address: str, loop: EngineLoop) -> None:
    """Says twice a second that the process lives, and how long its step takes."""
    context = zmq.Context()
    reports = connect(context, zmq.PUSH, f"{address}/{REPORTS}")
    awake = ActiveTime(2 * BEAT_S)
    step, before = None, 0.0
    while True:
        awake.tick()
        if loop.step_started != step:
            step, before = loop.step_started, awake.seconds
        reports.send(encode(Heartbeat(None if step is None else awake.seconds - before)))
        if (problem := loop.engine.problem()) is not None:  # nobody may ask it for anything
            loop.post(partial(loop.die, problem))
        time.sleep(BEAT_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
