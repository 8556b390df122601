"""A profile can be made and shown."""

from benchmarks.step_profile.parts import parts_of_instructions
from benchmarks.step_profile.trace import WINDOW, attribute

HLO = """
%body (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %a.1 = f32[8]{0} add(%p, %p), metadata={op_name="jit(step)/while/body/attention/add"}
  ROOT %lost = f32[8]{0} negate(%a.1)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %dot.2 = f32[8]{0} dot(%x, %x), lhs_contracting_dims={0}
  ROOT %w = f32[8]{0} while(%x), metadata={op_name="jit(step)/while"}
}
"""


def test_the_compilers_names_say_the_part() -> None:
    parts = parts_of_instructions(HLO)
    assert parts["a.1"] == parts["lost"] == "attention over pages"
    assert parts["dot.2"] == "head" and parts["w"] == "rest"


def test_each_instant_goes_to_what_is_at_work() -> None:
    def event(name: str, begin: float, end: float, thread: int) -> dict[str, object]:
        return {"name": name, "ts": begin, "dur": end - begin, "pid": 0, "tid": thread}

    events = [
        event(WINDOW, 0, 100, 0),
        event("loop", 10, 90, 1),  # 10 before it and 10 after it are dispatch
        event("q", 20, 40, 1),  # alone
        event("q", 50, 70, 1),  # beside another
        event("a", 50, 70, 2),
        event("a", 200, 300, 2),  # in no window
    ]
    spent, windows = attribute(events, {"loop": "rest", "q": "QKV", "a": "attention over pages"})
    assert windows == 1
    assert spent == {"dispatch": 20, "rest": 40, "QKV": 30, "attention over pages": 10}
