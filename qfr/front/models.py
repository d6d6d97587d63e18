"""The models that the configuration knows, as cells, without running anything."""

from __future__ import annotations

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from qfr.config import CellConfig
from qfr.errors import ConfigError, did_you_mean
from qfr.front.compose import to_cell
from qfr.front.spelling import choices_in, replacing, respell
from qfr.places import conf_folder


def model_names() -> tuple[str, ...]:
    """Choices of the group `model`."""
    return tuple(sorted(path.stem for path in (conf_folder() / "model").glob("*.yaml")))


def compose_cell(*overrides: str) -> CellConfig:
    """One cell as the front door would compose it from these overrides.

    Raises
    ------
    ConfigError
        An override names no choice.
    """
    spelled = respell(overrides, choices_in([conf_folder()]))
    for override in spelled:
        group, _, choice = override.partition("=")
        folder = conf_folder() / group
        names = sorted(path.stem for path in folder.glob("*.yaml"))
        if names and choice not in names:
            raise ConfigError(
                f"{group}={choice} is not a choice" + did_you_mean(choice, names),
                hint="one of " + ", ".join(names),
            )
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return to_cell(compose("config", overrides=replacing(spelled)))
