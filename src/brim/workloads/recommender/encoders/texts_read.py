"""How many texts were read, beside how many occurred in batches."""

from dataclasses import dataclass


@dataclass
class TextsRead:
    """Counted since the last :meth:`clear`.

    >>> texts = TextsRead()
    >>> texts.add(occurred=6144, encoded=2048)
    >>> texts.ratio
    3.0
    """

    occurred: int = 0
    encoded: int = 0

    def add(self, occurred: int, encoded: int) -> None:
        self.occurred += occurred
        self.encoded += encoded

    def clear(self) -> None:
        self.occurred = self.encoded = 0

    @property
    def ratio(self) -> float:
        """How many times fewer texts were read than occurred."""
        return self.occurred / self.encoded if self.encoded else 1.0

    def __str__(self) -> str:
        return (
            f"texts: {self.encoded:,} were encoded where {self.occurred:,} occurred in batches, {self.ratio:.1f}x fewer"
        )
