"""A drop-in replacement of the package `jericho`.

    from xtx.games.jericho import FrotzEnv         # instead of: from jericho import FrotzEnv

Names, arguments, return values and attributes are those of Jericho 3.3, and what they return is computed by Jericho's
own emulator, in a process of its own. Three things differ: `get_valid_actions` is answered by xtx's search, needs no
spaCy and is many times as fast; a command that kills or hangs the emulator does nothing, with a warning, and the
calling program goes on; and no story writes into the present folder. See docs/jericho-dropin.md.
"""

import sys
from typing import Any

from xtx.games.emulator.frotz import jericho as _jericho
from xtx.games.jericho.frotz_env import EmulatorLostWarning, FrotzEnv

ZObject = _jericho.ZObject
DictionaryWord = _jericho.DictionaryWord
TemplateActionGenerator = _jericho.jericho.TemplateActionGenerator
UnsupportedGameWarning = _jericho.UnsupportedGameWarning
TruncatedInputActionWarning = _jericho.TruncatedInputActionWarning
defines = _jericho.defines
util = _jericho.util
__version__ = _jericho.__version__

__all__ = [
    "DictionaryWord",
    "EmulatorLostWarning",
    "FrotzEnv",
    "TemplateActionGenerator",
    "TruncatedInputActionWarning",
    "UnsupportedGameWarning",
    "ZObject",
    "defines",
    "util",
]
# `from jericho import *` also gives modules and ctypes names that programs rely on.
__all__ += [name for name in dir(_jericho) if not name.startswith("_") and name not in __all__]


# `from xtx.games.jericho.util import clean` gives Jericho's, as `from jericho.util import clean` does.
for _name in ("defines", "template_action_generator", "util"):
    sys.modules[f"{__name__}.{_name}"] = sys.modules[f"jericho.{_name}"]


def __getattr__(name: str) -> Any:
    return getattr(_jericho, name)
