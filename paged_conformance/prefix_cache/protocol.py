"""What a prefix cache's adapter offers. The package's docstring says what each call means."""

from typing import Any, Protocol


class PrefixCacheTarget(Protocol):
    """All targets have these methods, `reset` only those that say so."""

    def match(self, *, tokens: list[int], salt: str | None) -> dict[str, Any]: ...

    def insert(
        self, *, tokens: list[int], slots: list[int], salt: str | None
    ) -> dict[str, int]: ...

    def lock(self, *, handle: int) -> None: ...

    def unlock(self, *, handle: int) -> None: ...

    def evict(self, *, num_tokens: int) -> list[int]: ...

    def sizes(self) -> dict[str, int]: ...

    def reset(self) -> None: ...


class Make(Protocol):
    """A factory of targets. It may have `capabilities` (words) and `sizes` (limits by name)."""

    def __call__(self, *, page_size: int) -> Any: ...
