"""A family maps the tensors of a checkpoint to the decoder's stacked and fused arrays."""

from scripts.figures.svg import PHONE, Drawing

NAMES = [("q_proj", 32, "a"), ("k_proj", 16, "b"), ("v_proj", 16, "c")]
LAYERS = 3


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 362, "Nine tensors of a checkpoint make one array of the decoder")
    picture.text(2, 14, "checkpoint", anchor="start")
    picture.text(356, 14, "layers.attention.qkv.weight [3, 64, 32]", anchor="end")
    for layer in range(LAYERS):
        rows_before = 0
        for i, (name, rows, fill) in enumerate(NAMES):
            y = 28 + layer * 112 + i * 36
            picture.box(2, y, 218, 28, f"layers.{layer}.self_attn.{name} [{rows}, 32]", fill)
            top = 36 + layer * 108 + rows_before * 1.5
            picture.box(252, top, 56, rows * 1.5, f"{rows} rows", fill)
            picture.arrow(222, y + 14, 250, top + rows * 0.75)
            rows_before += rows
        picture.text(313, 36 + layer * 108 + 48, f"layer {layer}", anchor="start")
    return {"family": picture}
