"""A configuration that is composed from remembered files is the one that Hydra composes from the files."""

from __future__ import annotations

import pickle

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict

from qfr.front.compose import to_cell
from qfr.front.sources import ComposedOnce, ReadOnce
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


def test_a_job_gets_what_hydra_would_compose_for_it() -> None:
    own = ["walk=[et,ep]", "sweep=s-1"]
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        plain = hydra.config_loader
        master = plain.load_configuration("config", [], RunMode.MULTIRUN)
        for cell in CELLS:
            composed = ComposedOnce(plain)
            point = composed.point(master, cell)
            job = composed.load_sweep_config(master, [*cell, *own])
            assert job is point
            expected = plain.load_sweep_config(master, [*cell, *own])
            for one in (job, expected):
                # Words of a folder's name: the sweep's own keys are in none of them.
                one.hydra.job.override_dirname = ""
            assert OmegaConf.to_yaml(job) == OmegaConf.to_yaml(expected)
            assert to_cell(job) == to_cell(expected)
            # A worker of another process has the files, not the compositions.
            elsewhere = pickle.loads(pickle.dumps(composed))
            made = elsewhere.load_sweep_config(master, [*cell, *own])
            assert to_cell(made) == to_cell(expected)
