"""GPUs to compile for, described by the numbers that XLA's code generator and cost model need."""

from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import topologies

DESCRIPTION = """
gpu_device_info {{
  driver_version: "{cuda}" runtime_version: "{cuda}" compile_time_toolkit_version: "{cuda}"
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {sms} fpus_per_core: {fpus} clock_rate_ghz: {clock_ghz}
  memory_bandwidth: {bandwidth} device_memory_size: {memory} l2_cache_size: {l2}
  shared_memory_per_core: {shared_sm} shared_memory_per_block_optin: {shared_block}
  shared_memory_per_block: 49152
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: {threads_sm}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
}}
platform_name: "CUDA"
device_description_str: "{device_kind}"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 13 }}
"""


@dataclass(frozen=True)
class Target:
    """One kind of GPU.

    Attributes:
        device_kind: the name that `jax.Device.device_kind` would give.
        major, minor: compute capability.
        sms, fpus, clock_ghz: streaming multiprocessors, float32 units of each, clock.
        bandwidth, memory, l2: bytes a second, bytes, bytes.
        shared_sm, shared_block: bytes of shared memory of an SM, and of one block at most.
        threads_sm: threads resident on an SM at most.
        backends: the backends of `pallas_kernels` that run on it, the best first.
        cuda: the version of CUDA that the driver, its runtime and the compilers have. Without one
            XLA compiles for a driver that is too old for most of what it puts into CUDA graphs.
    """

    device_kind: str
    major: int
    minor: int
    sms: int
    fpus: int
    clock_ghz: float
    bandwidth: int
    memory: int
    l2: int
    shared_sm: int
    shared_block: int
    threads_sm: int = 2048
    backends: tuple[str, ...] = ("triton", "xla")
    cuda: str = "13.0.0"

    def device(self) -> Any:
        """A JAX device without hardware, which `jax.default_device` accepts."""
        topology = topologies.get_topology_desc(
            platform="cuda",
            topology_name=self.device_kind,
            topology="1 x 1 x 1",
            target_config=DESCRIPTION.format_map(vars(self)),
        )
        device: jax.Device = topology.devices[0]
        return device


HOPPER: dict[str, Any] = {
    "major": 9,
    "minor": 0,
    "sms": 132,
    "fpus": 128,
    "clock_ghz": 1.98,
    "l2": 50 * 2**20,
    "shared_sm": 228 * 2**10,
    "shared_block": 227 * 2**10,
    "backends": ("mosaic", "triton", "xla"),
}

TARGETS = {
    "h200": Target("NVIDIA H200", bandwidth=4_800 * 10**9, memory=141 * 10**9, **HOPPER),
    "h100": Target("NVIDIA H100 80GB HBM3", bandwidth=3_350 * 10**9, memory=80 * 10**9, **HOPPER),
    "a100": Target(
        "NVIDIA A100-SXM4-80GB",
        major=8,
        minor=0,
        sms=108,
        fpus=64,
        clock_ghz=1.41,
        bandwidth=2_039 * 10**9,
        memory=80 * 10**9,
        l2=40 * 2**20,
        shared_sm=164 * 2**10,
        shared_block=163 * 2**10,
    ),
    "l40s": Target(
        "NVIDIA L40S",
        major=8,
        minor=9,
        sms=142,
        fpus=128,
        clock_ghz=2.52,
        bandwidth=864 * 10**9,
        memory=48 * 10**9,
        l2=96 * 2**20,
        shared_sm=100 * 2**10,
        shared_block=99 * 2**10,
        threads_sm=1536,
    ),
}
