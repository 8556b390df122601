"""Prompts that are given as embeddings: what the first layer reads, in place of tokens' vectors.

They come as arrays of NumPy, JAX or PyTorch, or in a file that `torch.save` wrote. Where a model
scales or norms the vectors of its table, they go in where vLLM's `inputs_embeds` do
(`ModelSpec.scales_inputs`). Numbers that are not finite are refused: they would spread to all that
share a block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from jaxtyping import Float

from jax_engine.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class EmbedsForm:
    """How an engine holds the embeddings of a prompt.

    Attributes:
        width: E, the numbers of a vector.
        dtype: The name of the dtype of activations.
    """

    width: int
    dtype: str

    def read(self, data: bytes) -> Float[np.ndarray, "n E"]:
        """The embeddings of a message: the bytes of such an array."""
        return np.frombuffer(data, np.dtype(self.dtype)).reshape(-1, self.width)


def embeds_of(given: Any, form: EmbedsForm | None) -> Float[np.ndarray, "n E"]:
    """The embeddings of a prompt, in the engine's dtype, in an array of their own.

    Args:
        given: [n, E], or [1, n, E] as models are given it.
        form: The engine's; None: it takes no embeddings.

    Raises:
        InvalidRequestError: It is no such array, is empty, or holds what is not finite.
    """
    if form is None:
        raise InvalidRequestError(
            "prompt_embeds must be left out, got embeddings: the engine was built without "
            "enable_prompt_embeds=True (--enable-prompt-embeds)"
        )
    array = _on_host(given)
    if array.ndim == 3 and len(array) == 1:
        array = array[0]
    if array.ndim != 2:
        raise InvalidRequestError(
            f"prompt_embeds must be of shape (num_tokens, hidden_size), got the shape {array.shape}"
        )
    count, width = array.shape
    if width != form.width:
        raise InvalidRequestError(
            f"prompt_embeds must have the model's hidden_size ({form.width}) numbers for each "
            f"token, got {width}"
        )
    if not count:
        raise InvalidRequestError("prompt_embeds must have at least 1 token, got none")
    if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
        raise InvalidRequestError(
            f"prompt_embeds must be of a floating-point dtype, got {array.dtype.name}"
        )
    with np.errstate(over="ignore"):
        own = np.array(array, np.dtype(form.dtype), order="C")
    finite = np.isfinite(own).all(axis=1)
    if not finite.all():
        raise InvalidRequestError(
            f"prompt_embeds must be finite in the engine's dtype ({form.dtype}), got NaN or "
            f"infinity for token {int(np.argmin(finite))}"
        )
    return own


def refuse_embeds(prompts: Any) -> None:
    """
    Raises:
        InvalidRequestError: One of the prompts is embeddings, where its tokens are asked for.
    """
    several = isinstance(prompts, Sequence) and not isinstance(prompts, str | bytes)
    for one in prompts if several else [prompts]:
        if isinstance(one, Mapping) and one.get("prompt_embeds") is not None:
            raise InvalidRequestError(
                "prompt_embeds must be left out in beam_search, whose outputs begin with the "
                "prompt's tokens: use generate with SamplingParams(use_beam_search=True)"
            )


def _on_host(given: Any) -> np.ndarray:
    """An array of anyone's. PyTorch gives NumPy no bfloat16, nor what needs gradients."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if given.is_floating_point() else given
        given = given.numpy()
    if not hasattr(given, "__array__"):
        raise InvalidRequestError(
            f"prompt_embeds must be an array of NumPy, JAX or PyTorch, got {type(given).__name__}"
        )
    return np.asarray(given)
