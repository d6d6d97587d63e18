"""Files of the configuration, read once per sweep: Hydra by itself reads them anew for each cell."""

from __future__ import annotations

import pickle

from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra.plugins.config_source import ConfigResult

# Sources whose content is plain YAML. The others (schemas in memory) are quick.
_FILES = ("file", "pkg")


class ReadOnce(CachingConfigRepository):
    """Hydra's repository of configuration files, with a memory that outlives a composition.

    A composition copies the repository (the memory is shared then, as a sweep's search path is one and the
    same) and writes into what it loads, so each gets an object of its own. It comes from a pickle: five times
    as fast as a deep copy, and twenty-five times as fast as reading the YAML.
    """

    def __init__(self, delegate: IConfigRepository) -> None:
        super().__init__(delegate)
        self.files: dict[str, bytes] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        """A file's content, a copy of its own."""
        known = self.files.get(config_path)
        if known is not None:
            copied = pickle.loads(known)
            assert isinstance(copied, ConfigResult)
            return copied
        loaded: ConfigResult | None = self.delegate.load_config(config_path)
        if loaded is not None and loaded.path.partition("://")[0] in _FILES:
            self.files[config_path] = pickle.dumps(loaded)
        return loaded

    def __deepcopy__(self, memo: dict[int, object]) -> ReadOnce:
        twin = ReadOnce(self.delegate)
        twin.files = self.files
        return twin
