"""Reads config.json of a run folder."""

from __future__ import annotations

from pathlib import Path

from xtx.config.config_file import ConfigError, decode_config
from xtx.config.settings import RunConfig
from xtx.core import UserError
from xtx.files.bounded_reads import BadFileError, check_bounds, read_bounded

_MAX_CONFIG_BYTES = 1 << 20
"""Limits the size of config.json; the largest preset's has 2,000 bytes."""


def read_config(folder: Path) -> RunConfig:
    """Read the config of a run. Raises `UserError` if the folder is not a run, or config.json cannot be used."""
    path = folder / "config.json"
    try:
        content = read_bounded(path, _MAX_CONFIG_BYTES)
        check_bounds(content)
        return decode_config(content)
    except OSError as error:
        raise UserError(f"{folder} is not a run ({error.strerror}: config.json); give the folder of one") from None
    except ConfigError as error:
        raise UserError(f"{path} {error}") from None
    except BadFileError as error:
        raise UserError(f"{path} is damaged ({error}); start the run again in another folder") from None
