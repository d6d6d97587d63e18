"""A configuration that is composed from remembered files is the one that Hydra composes from the files."""

from __future__ import annotations

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf, open_dict

from qfr.front.sources import ReadOnce
from qfr.places import conf_folder

CELLS = [
    ["model=llama", "quant=q4_k_m", "prompt=P3", "fault=ep"],
    ["experiment=demo", "quant=q2_k"],
    ["model=ref_llama", "suite=orders20_ref", "engine.streams=4", "+suite.families.gap=3"],
    ["engine=openai", "hydra/launcher=basic", "report=default"],
]


def test_remembered_files_give_the_same_configuration() -> None:
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        plain = [compose("config", overrides=cell, return_hydra_config=True) for cell in CELLS]
        hydra.config_loader.repository = ReadOnce(hydra.config_loader.repository)
        for _ in range(2):
            for cell, expected in zip(CELLS, plain, strict=True):
                made = compose("config", overrides=cell, return_hydra_config=True)
                assert OmegaConf.to_yaml(made) == OmegaConf.to_yaml(expected)
                # What is done to one configuration must not be seen in the next.
                with open_dict(made):
                    made.engine.seed, made.quant, made.added = 99, None, [1]
