"""Checkpoints in the Hugging Face cache: found by name, listed, fetched.

Only `pull` goes to the network; whatever else names a checkpoint uses what is there. Where the
cache is, the endpoint, the token and offline mode are huggingface_hub's own variables (`HF_HOME`,
`HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vlmcli.errors import ModelError, UnreachableError, first_line
from vlmcli.paths import exists

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
READ_SUFFIXES = (".json", ".safetensors", ".txt", ".jinja", ".model")
"""Of the files that a checkpoint is read from: configuration, weights, vocabulary, chat format;
pickled weights and code are left where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCheckpoint:
    """A checkpoint in the cache."""

    name: str
    path: Path
    num_bytes: int


def is_hub_id(name: str) -> bool:
    """Whether a name can be `owner/model` on the hub, and is no path that exists."""
    return _HUB_ID.fullmatch(name) is not None and not exists(Path(name))


def cached_path(name: str) -> Path | None:
    """Directory of `owner/model` in the cache; None where it is not, or the name is no such."""
    if not is_hub_id(name):
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def cached_checkpoints() -> Iterator[CachedCheckpoint]:
    """What the cache holds of models that have a config.json, by name."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        found = scan_cache_dir()
    except (CacheNotFound, ValueError):
        return
    for repo in sorted(found.repos, key=lambda repo: repo.repo_id):
        path = cached_path(repo.repo_id) if repo.repo_type == "model" else None
        if path is not None and (path / "config.json").is_file():
            yield CachedCheckpoint(name=repo.repo_id, path=path, num_bytes=repo.size_on_disk)


def pull(name: str, revision: str | None = None) -> Path:
    """Fetch what is missing of a checkpoint, and go on where an earlier fetch broke off.

    Args:
        name: `owner/model`.
        revision: branch, tag or commit; None for the main branch.

    Returns:
        Its directory in the cache.

    Raises:
        ModelError: there is no such checkpoint, or it may not be read.
        UnreachableError: the hub cannot be reached.
    """
    from huggingface_hub import errors as hub_errors
    from huggingface_hub import snapshot_download

    if not is_hub_id(name):
        raise ModelError(f"not a name on the hub: {name}", remedy="write it as owner/model")
    wanted = [f"*{suffix}" for suffix in READ_SUFFIXES]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except hub_errors.GatedRepoError as error:
        raise ModelError(
            f"{name} is given to those alone who accept its terms",
            remedy="accept them on its page and set HF_TOKEN",
        ) from error
    except (hub_errors.RepositoryNotFoundError, hub_errors.RevisionNotFoundError) as error:
        raise ModelError(
            f"no such model, or it is private: {name}", remedy="check the name, or set HF_TOKEN"
        ) from error
    except (hub_errors.HFValidationError, ValueError) as error:
        raise ModelError(f"not a name on the hub: {name}: {error}") from error
    except (hub_errors.HfHubHTTPError, hub_errors.LocalEntryNotFoundError) as error:
        raise UnreachableError(
            f"cannot fetch {name}: {first_line(error.__cause__ or error)}",
            remedy="check the network and HF_HUB_OFFLINE, or copy the directory and name its path",
        ) from error
    # Of the HTTP library that huggingface_hub uses, which differs between its versions.
    except hub_errors.HTTPError as error:  # type: ignore[attr-defined]
        raise UnreachableError(
            f"cannot fetch {name}: {error}", remedy="run it again, it goes on where it broke off"
        ) from error
