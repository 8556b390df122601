"""The eight functions from `LLM.generate` to the model, and which process or thread runs each."""

from scripts.figures.svg import PHONE, Drawing

YOURS, ENGINE = "a", "b"
ROWS = (
    ("LLM.generate", "LLM.generate", "LLM.generate"),
    ("_run_engine", "_run_engine", "Calls.run"),
    ("add_request", "add_request", "add_all"),
    ("LLMEngine.step", "EngineCore.step", "run_step"),
    ("_run_workers", "Executor", "Runner.launch"),
    ("Worker", "Worker", "Worker.launch"),
    ("_prepare_inputs", "GPUModelRunner", "CompiledSteps"),
    ("OPTForCausalLM", "OPTForCausalLM", "Decoder"),
)
COLUMNS = ("vLLM 0.2.0", "vLLM V1", "here")
WIDE, HIGH = 113, 27
IN_ENGINE = (len(ROWS), 3, 2)  # the first row that the engine's process or thread runs


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 345, "Eight functions, and who runs them")
    for column, (name, first) in enumerate(zip(COLUMNS, IN_ENGINE, strict=True)):
        x = 4 + column * (WIDE + 6)
        picture.text(x + WIDE / 2, 12, name)
        for row, texts in enumerate(ROWS):
            y = 26 + row * (HIGH + 9)
            fill = ENGINE if row >= first else YOURS
            picture.box(x, y, WIDE, HIGH, texts[column], fill)
            if row:
                picture.arrow(x + WIDE / 2, y - 9, x + WIDE / 2, y)
    for i, (text, fill) in enumerate((("your thread", YOURS), ("the engine's own", ENGINE))):
        picture.box(60 + i * 130, 320, 14, 14, "", fill)
        picture.text(80 + i * 130, 327, text, anchor="start")
    return {"eight-functions": picture}
