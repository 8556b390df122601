"""The device that kernels are chosen and compiled for."""

import os

import jax


def target_device() -> jax.Device:
    """JAX's default device: the one that `jax.default_device` names, else the first one.

    It may be a device that is only described, for compiling ahead of time.
    """
    device = jax.config.jax_default_device
    if device is None or isinstance(device, str):
        return jax.devices(device)[0]
    return device


def interpreting() -> bool:
    """Whether GPU kernels are interpreted, because the device is the CPU."""
    return str(target_device().platform) == "cpu"


def pool_threads() -> int:
    """Threads of XLA's pool on the CPU, counted as XLA does when JAX starts.

    One for each core that this process may use, unless PJRT_NPROC or NPROC says how many. There is
    at least one for each of JAX's CPU devices.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    said = os.environ.get("PJRT_NPROC", os.environ.get("NPROC", ""))
    return max(int(said) if said.isdecimal() else cores or 1, jax.local_device_count("cpu"))


def gfx_version() -> str | None:
    """Architecture of an AMD GPU: "gfx942" for an MI300X. None for any other device.

    A GPU that is only described, or whose driver has no name for it, has it as its kind.
    """
    device = target_device()
    for said in (getattr(device, "compute_capability", ""), device.device_kind):
        if device.platform == "gpu" and str(said).startswith("gfx"):
            return str(said).partition(":")[0]
    return None


def wave_size() -> int:
    """Threads of a warp: 64 on AMD's GPUs for data centres (gfx9), 32 on all others."""
    return 64 if (gfx_version() or "").startswith("gfx9") else 32


def sm_version() -> int | None:
    """Compute capability of an NVIDIA GPU, times ten: 90 for 9.0. None for any other device."""
    device = target_device()
    major, _, minor = str(getattr(device, "compute_capability", "")).partition(".")
    if device.platform != "gpu" or not (major.isdigit() and minor.isdigit()):
        return None
    return int(major) * 10 + int(minor)
