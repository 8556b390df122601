"""A family maps the tensors of a checkpoint to the decoder's stacked and fused arrays."""

from scripts.figures.svg import Drawing

NAMES = [("q_proj", 32, "a"), ("k_proj", 16, "b"), ("v_proj", 16, "c")]
LAYERS = 3


def draw() -> dict[str, Drawing]:
    picture = Drawing(640, 362, "Nine tensors of a checkpoint make one array of the decoder")
    picture.text(150, 14, "checkpoint")
    picture.text(520, 14, "layers.attention.qkv.weight [3, 64, 32]")
    for layer in range(LAYERS):
        rows_before = 0
        for i, (name, rows, fill) in enumerate(NAMES):
            y = 28 + layer * 112 + i * 36
            picture.box(30, y, 250, 28, f"layers.{layer}.self_attn.{name} [{rows}, 32]", fill)
            top = 36 + layer * 108 + rows_before * 1.5
            picture.box(440, top, 150, rows * 1.5, f"{rows} rows", fill)
            picture.arrow(282, y + 14, 436, top + rows * 0.75)
            rows_before += rows
        picture.text(596, 36 + layer * 108 + 48, f"layer {layer}", anchor="start", size=10)
    return {"family": picture}
