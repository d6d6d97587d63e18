"""What a server says of itself: which model, which build, which template. Recorded with every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePath

from qfr.canonical import canonical, digest, sha256_hex
from qfr.engine.base import EngineInfo
from qfr.engine.native.served import FORM
from qfr.engine.openai.client import Client
from qfr.engine.openai.fields import well_formed
from qfr.errors import EngineError, did_you_mean
from qfr.served import ServerConfig

# Of a model's entry in /models: what changes from call to call is left out.
_LASTING = ("id", "owned_by", "root", "parent", "max_model_len", "meta")


@dataclass(frozen=True)
class Served:
    """A model at a server."""

    model: str
    # Its name there.
    entry: Mapping[str, object]
    # What /models says of it, without what changes from call to call.
    build: Mapping[str, str]
    # Kind of server → build or version.
    template_sha256: str
    # Of the chat template, where the server tells it; empty otherwise.
    n_ctx: int
    # Context in tokens; 0 where the server does not tell.


def look_at(client: Client, settings: ServerConfig) -> Served:
    """Ask the server what it serves.

    Raises
    ------
    EngineError
        Nobody answers; the model is not served; several are and none is named.
    """
    entries = {well_formed(str(one["id"])): one for one in client.models()}
    name = settings.model
    if name is None:
        if len(entries) != 1:
            raise EngineError(
                f"serves {len(entries)} models" + (f" ({', '.join(list(entries)[:8])})" if entries else ""),
                where=settings.base_url,
                hint="name one: engine.server.model=…",
            )
        name = next(iter(entries))
    elif entries and name not in entries:
        raise EngineError(
            f"does not serve {name!r}{did_you_mean(name, entries)}",
            where=settings.base_url,
            hint=f"it serves {', '.join(list(entries)[:8])}",
        )
    entry = {key: value for key, value in entries.get(name, {}).items() if key in _LASTING}
    entry = {key: _plain(value) for key, value in entry.items()}
    props = client.page("/props")
    build = {
        "llama-server": _word(props, "build_info"),
        # vLLM and SGLang, Ollama, text-generation-inference.
        "version": _word(client.page("/version"), "version"),
        "api/version": _word(client.page("/api/version"), "version"),
        "info": _word(client.page("/info"), "version"),
    }
    template = props.get("chat_template")
    return Served(
        model=name,
        entry=entry,
        build={key: value for key, value in build.items() if value},
        template_sha256=sha256_hex(template.encode("utf-8", "surrogatepass"))
        if isinstance(template, str)
        else "",
        n_ctx=_context(entry, props),
    )


def served_info(
    settings: ServerConfig,
    served: Served,
    fingerprint: str,
    seed: int,
    sampling: Mapping[str, float] | None = None,
) -> EngineInfo:
    """Provenance of a served model. What ran is known by what the server says, not by a file's digest."""
    told = {
        "address": settings.base_url,
        "name": settings.identity_name,
        "model": served.model,
        "entry": dict(served.entry),
        "build": dict(served.build),
        "fingerprint": fingerprint,
        "sampling": {
            **(
                {"temperature": 0, "top_p": 1}
                if sampling is None
                else {**sampling, "noise": "the server's own: a seed for each task, trial and turn"}
            ),
            "seed": seed,
            **settings.extra_fields(),
        },
        "template": "the server's own" + ("" if served.template_sha256 else ", not told"),
    }
    return EngineInfo(
        kind="openai",
        library_version="",
        llama_commit="",
        llama_commit_source="none",
        library_sha256=digest({"build": dict(served.build), "fingerprint": fingerprint}),
        system_info=canonical(told),
        device="server",
        offloaded_layers=0,
        n_ctx=served.n_ctx,
        model_sha256=digest({"model": served.model, "entry": dict(served.entry)}),
        model_bytes=0,
        n_params=0,
        tensor_types=(),
        metadata=(),
        template_sha256=served.template_sha256,
        system_role="server",
        call_form=canonical(asdict(FORM)),
        rewind=False,
    )


def _plain(value: object) -> object:
    """Numbers as text (canonical JSON holds no binary fractions); paths by their last part."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return well_formed(PurePath(value).name if value.startswith("/") else value)
    return value


def _word(page: Mapping[str, object], key: str) -> str:
    value = page.get(key)
    return well_formed(value) if isinstance(value, str) else ""


def _context(entry: Mapping[str, object], props: Mapping[str, object]) -> int:
    settings = props.get("default_generation_settings")
    told = [entry.get("max_model_len"), settings.get("n_ctx") if isinstance(settings, Mapping) else None]
    return next((one for one in told if isinstance(one, int) and one > 0), 0)
