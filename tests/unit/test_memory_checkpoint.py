"""Facts of checkpoint directories, and coefficients kept on disk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vlmcli.errors import ModelError, OutputError
from vlmcli.memory.calibration import calibration_key, load_calibration, store_calibration
from vlmcli.memory.checkpoint_facts import facts_from_directory
from vlmcli.memory.estimate import Coefficients
from vlmcli.memory.presets import require_preset

TINY = {
    "model_type": "qwen2_vl",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 300,
    "torch_dtype": "float32",
    "vision_config": {"depth": 2, "embed_dim": 32, "num_heads": 2, "hidden_size": 64},
}


def write_weights(file: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """A safetensors file of zeros, written by hand: name → dtype, shape, bytes per number."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, width) in tensors.items():
        size = width
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(offset))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return tmp_path


def test_shapes_alone_without_weights(checkpoint: Path) -> None:
    facts = facts_from_directory(checkpoint, "tiny")
    assert facts.stored_parameters is None
    assert facts.num_parameters == facts.shape_parameters
    assert facts.dtype == "float32"
    assert facts.reads == "page"
    assert facts.measure(280, 560).num_tokens == 200


def test_headers_tell_numbers_dtype_and_the_largest_tensor(checkpoint: Path) -> None:
    write_weights(checkpoint / "a.safetensors", {"w": ("BF16", [100, 3], 2), "b": ("F32", [7], 4)})
    write_weights(checkpoint / "draft" / "d.safetensors", {"head": ("BF16", [10], 2)})
    facts = facts_from_directory(checkpoint, "tiny")
    assert facts.num_parameters == 317
    assert facts.dtype == "bfloat16"
    assert facts.largest_tensor_bytes == 600


def test_processor_and_reading_settings_are_taken(checkpoint: Path) -> None:
    settings = {"image_processor": {"size": {"shortest_edge": 784, "longest_edge": 78_400}}}
    (checkpoint / "processor_config.json").write_text(json.dumps(settings))
    (checkpoint / "vlmcli.json").write_text('{"reads": "lines", "max_line_width": 560}')
    facts = facts_from_directory(checkpoint, "tiny")
    assert facts.measure(2800, 2800).num_tokens == 100
    assert (facts.reads, facts.line_height, facts.max_line_width) == ("lines", 28, 560)


def test_built_in_model_is_a_checkpoint_like_any_other() -> None:
    import vlmcli

    facts = facts_from_directory(Path(vlmcli.__file__).parent / "nano", "nano")
    assert facts.reads == "lines"
    assert facts.stored_parameters is not None
    assert facts.measure(facts.max_line_width, facts.line_height).num_tokens == 32
    assert facts.shape_parameters <= facts.num_parameters <= 1.2 * facts.shape_parameters


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("config.json", b"not json", "config.json"),
        ("config.json", b"[1]", "not a JSON object"),
        ("model.safetensors", b"", "not a safetensors file"),
        ("model.safetensors", (1 << 40).to_bytes(8, "little"), "not a safetensors file"),
        ("model.safetensors", (2).to_bytes(8, "little") + b"{", "header"),
        ("model.safetensors", (8).to_bytes(8, "little") + b'{"a": 1}', "broken header"),
    ],
)
def test_broken_files_are_named(checkpoint: Path, name: str, content: bytes, cause: str) -> None:
    (checkpoint / name).write_bytes(content)
    with pytest.raises(ModelError, match=cause):
        facts_from_directory(checkpoint, "tiny")


def test_a_folder_that_is_no_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        facts_from_directory(tmp_path, "x")


def test_calibrations_come_back_whole_or_not_at_all(tmp_path: Path) -> None:
    facts = require_preset("qwen2.5-vl-3b")
    key = calibration_key(facts, "cpu", "float32")
    assert load_calibration(key, tmp_path) is None
    measured = Coefficients(encoder_factor=1.25, main_bytes=123)
    file = store_calibration(key, measured, tmp_path)
    assert load_calibration(key, tmp_path) == measured
    assert list(tmp_path.iterdir()) == [file]
    file.write_text('{"main_bytes": -1}')
    assert load_calibration(key, tmp_path) is None


def test_calibration_keys_differ_with_model_device_and_dtype(tmp_path: Path) -> None:
    facts = require_preset("qwen2.5-vl-3b")
    other = replace(facts, decoder=replace(facts.decoder, num_layers=35))
    keys = {
        calibration_key(facts, "cpu", "float32"),
        calibration_key(facts, "cuda", "float32"),
        calibration_key(facts, "cpu", "bfloat16"),
        calibration_key(other, "cpu", "float32"),
    }
    assert len(keys) == 4
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        store_calibration("k", Coefficients(), tmp_path / "file")
