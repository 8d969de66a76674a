"""How the rows of a prompt set are read."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from mmrl.config import one_of
from mmrl.config.constraints import check_settings
from mmrl.data.formats import FORMATS


@dataclass(kw_only=True)
class DataConfig:
    """How the rows of a prompt set are read."""

    format: Annotated[str, one_of(FORMATS)] = "rows"
    """Data set whose columns the rows have, see `mmrl.data.formats`; `rows` for the names there."""
    config: str | None = None
    """Configuration of a hub data set, such as `main` of openai/gsm8k."""
    split: str | None = None
    """Split of a hub data set, or a slice such as `train[:-500]`; null is `train`."""
    columns: dict[str, str] = field(default_factory=dict)
    """Columns with other names: the name that is read -> the name in the file."""
    where: dict[str, Any] = field(default_factory=dict)
    """Rows to read: column of the file -> its value, or a list of values; empty for all. Values are
    compared as text, so 5 equals "5". `len(nums)` is the number of items in the column `nums`."""
    image_root: str | None = None
    """Folder of the images that rows name by a path; no path may leave it. null is the folder of
    the prompt file."""
    system: str = ""
    """A system message before every prompt; empty for none."""
    template: str = ""
    """Text of every prompt, with `{prompt}` and other columns filled in; empty takes the prompt as
    it is. A list of texts is joined by line ends; a literal brace is written twice. `{lettered}` is
    the row's `choices`, each on its own line after its letter ("A. One"), for formats that do not
    put them into the prompt; empty without choices. `{hint}` is the sentence with which public
    harnesses ask for the letter of a choice, a word or phrase, or a kind of number."""

    def __post_init__(self) -> None:
        check_settings(self, "data")
