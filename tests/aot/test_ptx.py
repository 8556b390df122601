"""Registers, spills and shared memory out of what the compilers print."""

from pathlib import Path

from pallas_kernels.aot.ptx import LAUNCH, Resources, arithmetic, mosaic_kernels, parse_report

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'paged_prefill' for 'sm_80'
ptxas info    : Function properties for paged_prefill
    72 bytes stack frame, 64 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 72 bytes cumulative stack size
ptxas info    : Compiling entry function 'loop_add_fusion' for 'sm_80'
ptxas info    : Function properties for loop_add_fusion
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers, 1024 bytes smem
ptxas info    : Compile time = 3.1 ms
"""


def test_each_kernel_of_a_report() -> None:
    assert parse_report(REPORT, {"paged_prefill": 90112}) == [
        Resources("paged_prefill", registers=255, spilled=72, shared=90112),
        Resources("loop_add_fusion", registers=16, spilled=0, shared=1024),
    ]


def test_shared_memory_of_a_launch() -> None:
    line = "001: kCustomKernel [source | sink] decode grid: [8, 8, 1] threads: [128, 1, 1]  "
    assert LAUNCH.findall(line + "shared_memory: 39168 bytes") == [("decode", "39168")]


def test_kernels_that_mosaic_printed() -> None:
    printed = "Resources(smem_scratch_bytes=1000, tmem=0)\nResources(smem_scratch_bytes=20, x=1)\n"
    assert [kernel.shared for kernel in mosaic_kernels(printed + REPORT)] == [1000, 1044]


def test_nothing_printed_is_no_kernel() -> None:
    assert mosaic_kernels("") == []


PTX = """\
.entry invariant_sum(
  .param .u64 x
)
{
  add.s32 %r1, %r2, %r3;
  add.rn.f32 %f1, %f2, %f3;
  @%p1 fma.rn.f32 %f1, %f2, %f3, %f4;
  shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;
}
.entry invariant_sum_2(
)
{
  wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, %rd1, %rd2;
}
.entry loop_add_fusion(
)
{
  mul.rn.f32 %f1, %f2, %f3;
}
"""


def test_instructions_on_floats_by_kernel(tmp_path: Path) -> None:
    """Not those on integers, which count rows, and not other kernels'."""
    (tmp_path / "module.ptx").write_text(PTX)
    assert arithmetic(tmp_path, ("invariant_", "paged_")) == {
        ("invariant_sum", "add.rn.f32", "fma.rn.f32", "shfl.sync.bfly.b32"),
        ("invariant_sum", "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"),
    }
