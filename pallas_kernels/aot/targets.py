"""GPUs to compile for, described by the numbers that XLA's code generator and cost model need."""

import itertools
from dataclasses import dataclass
from typing import Any

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
  threads_per_warp: {wave_size} threads_per_block_limit: 1024 threads_per_core_limit: {threads_sm}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
}}
platform_name: "CUDA"
device_description_str: "{device_kind}"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 13 }}
"""
DESCRIPTION_ROCM = """
gpu_device_info {{
  driver_version: "{rocm}" runtime_version: "{rocm}" compile_time_toolkit_version: "{rocm}"
  rocm_compute_capability {{ gcn_arch_name: "{device_kind}:{features}" }}
  core_count: {sms} fpus_per_core: {fpus} clock_rate_ghz: {clock_ghz}
  memory_bandwidth: {bandwidth} device_memory_size: {memory} l2_cache_size: {l2}
  shared_memory_per_core: {shared_sm} shared_memory_per_block_optin: {shared_block}
  shared_memory_per_block: {shared_block}
  registers_per_core_limit: 131072 registers_per_block_limit: 131072
  threads_per_warp: {wave_size} threads_per_block_limit: 1024 threads_per_core_limit: {threads_sm}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65536 block_dim_limit_z: 65536
}}
platform_name: "ROCM"
device_description_str: "{device_kind}"
dnn_version_info {{ }}
runtime_version {{ major: 7 minor: 14 }}
"""
DESCRIPTIONS = {"cuda": DESCRIPTION, "rocm": DESCRIPTION_ROCM}
# XLA keeps code objects by their source and the order of these words, and writes no file of a
# kernel that the process has compiled before. So a device has another order than the one before it.
FEATURES = itertools.cycle(("sramecc+:xnack-", "xnack-:sramecc+"))


@dataclass(frozen=True)
class Target:
    """One kind of GPU.

    Attributes:
        device_kind: the name that `jax.Device.device_kind` would give. Pallas goes by an AMD GPU's
            architecture, so there it is that.
        major, minor: compute capability; of an AMD GPU the first two numbers of its architecture.
        sms, fpus, clock_ghz: streaming multiprocessors, float32 units of each, clock.
        bandwidth, memory, l2: bytes a second, bytes, bytes.
        shared_sm, shared_block: bytes of shared memory of an SM, and of one block at most.
        threads_sm: threads resident on an SM at most.
        backends: the backends of `pallas_kernels` that run on it, the best first.
        platform: JAX's name of the compilers: "cuda" or "rocm".
        wave_size: threads of a warp, which AMD calls a wave.
        cuda, rocm: the version of CUDA, or of ROCm, that the driver, its runtime and the compilers
            have. Without one XLA compiles for a driver that is too old for most of what it puts
            into CUDA graphs.
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
    platform: str = "cuda"
    wave_size: int = 32
    cuda: str = "13.0.0"
    rocm: str = "7.14.0"

    def device(self) -> Any:
        """A JAX device without hardware, which `jax.default_device` accepts."""
        return self.devices(1)[0]

    def devices(self, count: int) -> tuple[Any, ...]:
        """So many of them in one machine, to make a mesh of."""
        topology = topologies.get_topology_desc(
            platform=self.platform,
            topology_name=self.device_kind,
            topology=f"1 x 1 x {count}",
            target_config=DESCRIPTIONS[self.platform].format_map(
                vars(self) | {"features": next(FEATURES)}
            ),
        )
        return tuple(topology.devices)


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
    "mi300x": Target(
        "gfx942",
        major=9,
        minor=4,
        sms=304,
        fpus=128,
        clock_ghz=2.1,
        bandwidth=5_300 * 10**9,
        memory=192 * 10**9,
        l2=4 * 2**20,
        shared_sm=64 * 2**10,
        shared_block=64 * 2**10,
        platform="rocm",
        wave_size=64,
    ),
}
