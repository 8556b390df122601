"""Parts of a request that programs make, and that the engine refuses where they are used."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LoRARequest:
    """A LoRA adapter; programs import the class, with or without a use for one.

    An engine here loads no adapters: whatever gets one refuses it.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
