"""The nano recipe: data by seed, the prompt that carries the draft, and a run from nothing."""

import importlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

RECIPE = Path(__file__).parents[2] / "recipes" / "nano"
MODULES = (
    *("fonts", "records", "text", "degrade", "data", "model", "objective", "export"),
    *("attention", "measures", "pages", "evaluate", "compare", "train"),
)
TINY = {"vision_depth": 1, "depth": 1, "vision_width": 48, "vision_heads": 3, "intermediate": 64}


@pytest.fixture(scope="module")
def recipe() -> Iterator[dict[str, ModuleType]]:
    """The recipe's modules, imported as its scripts import each other."""
    before = {name: sys.modules.pop(name, None) for name in MODULES}
    sys.path.insert(0, str(RECIPE))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(str(RECIPE))
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def table_distance(first: str, second: str) -> int:
    """The textbook table, as the reference for the bit-parallel one."""
    rows = [list(range(len(second) + 1))]
    for i, a in enumerate(first, 1):
        rows.append([i])
        for j, b in enumerate(second, 1):
            rows[i].append(
                min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            )
    return rows[-1][-1]


@given(st.text("abcé ", max_size=30), st.text("abcé ", max_size=30))
def test_the_distance_is_the_tables(recipe: dict[str, ModuleType], first: str, second: str) -> None:
    distance = recipe["measures"].edit_distance
    assert distance(first, second) == table_distance(first, second)
    stretches = {second[a:b] for a in range(len(second) + 1) for b in range(a, len(second) + 1)}
    if len(stretches) < 100:
        expected = min(table_distance(first, stretch) for stretch in stretches)
        assert distance(first, second, anywhere=True) == expected


def test_lines_follow_from_the_seed(recipe: dict[str, ModuleType]) -> None:
    def draw(seed: int) -> list[tuple[str, bytes]]:
        generator = recipe["data"].LineGenerator(seed)
        return [(line.text, line.pixels.tobytes()) for line in (generator.draw(40),) * 3]

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


@pytest.mark.parametrize("profile", ["clean", "print", "grey", "typescript", "low", "screen"])
def test_a_line_is_what_its_label_says(recipe: dict[str, ModuleType], profile: str) -> None:
    generator = recipe["data"].LineGenerator(11)
    for _ in range(10):
        line = generator.draw(50, profile=profile)
        assert line.pixels.dtype == np.uint8
        assert line.pixels.shape[0] == recipe["data"].LINE_HEIGHT
        assert recipe["text"].ALPHABET.issuperset(line.text)
        assert line.text == " ".join(line.text.split())
        assert len(line.centres) == len(line.text)
        assert list(line.centres) == sorted(line.centres)
        assert 0 <= line.centres[0] <= line.centres[-1] <= line.pixels.shape[1]


@pytest.mark.parametrize("installed", ["all", "none", "DejaVu Serif", "Lato"])
def test_held_out_families_are_never_trained_on(
    recipe: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    """Also on a machine that has fonts of one side alone, as a bare Debian has DejaVu."""
    fonts = recipe["fonts"]
    if installed != "all":
        row = f"/fonts/a.ttf: {installed}:style=Book\n" if installed != "none" else ""
        answer = subprocess.CompletedProcess([], 0, stdout=row)
        monkeypatch.setattr(fonts.shutil, "which", lambda name: name)
        monkeypatch.setattr(fonts.subprocess, "run", lambda *args, **options: answer)
    faces = fonts.list_faces.__wrapped__()
    trained = {face.path for face in faces if not face.held_out}
    held = {face.path for face in faces if face.held_out}
    assert trained and held
    assert not (trained & held) or trained == {None}


def test_packed_batches_have_whole_tokens_and_a_centre_for_each_glyph(
    recipe: dict[str, ModuleType],
) -> None:
    generator = recipe["data"].LineGenerator(3)
    lines = [generator.draw(30, profile="clean") for _ in range(6)]
    batch = recipe["data"].pack(lines, 260)
    assert batch.pixels.shape[:2] == (6, 28)
    assert batch.pixels.shape[2] % 28 == 0
    assert batch.dense.shape == (6, batch.pixels.shape[2] // 7)
    for line, row, target in zip(lines, batch.dense, batch.targets, strict=True):
        assert target.decode() == line.text
        assert set(row.tolist()) - {260} <= {c.encode()[-1] for c in line.text}


@given(st.lists(st.sampled_from([65, 66, 260, 259]), max_size=40))
def test_collapse_merges_repeats_and_drops_blanks(
    recipe: dict[str, ModuleType], steps: list[int]
) -> None:
    collapse = recipe["model"].collapse
    doubled = [step for step in steps for _ in range(2)]
    assert collapse(doubled) == collapse(steps)
    spaced = [item for step in steps for item in (step, 260)]
    assert collapse(spaced) == bytes(step for step in steps if step < 256)


def test_prompt_holds_the_draft_and_only_the_line_is_learned(
    recipe: dict[str, ModuleType],
) -> None:
    import torch

    chance = torch.Generator().manual_seed(0)
    drafts, lines = [b"ab", b"xyzz"], [b"abc", b"xy"]
    ids, labels = recipe["objective"].decoder_inputs(drafts, lines, 3, 0.0, chance)
    assert ids[0].tolist() == [97, 98, 260, 262, 97, 98, 99]
    assert labels[0].tolist() == [-100, -100, -100, 97, 98, 99, 259]
    assert ids[1, :6].tolist() == [120, 121, 122, 262, 120, 121]
    assert labels[1].tolist() == [-100, -100, -100, 120, 121, 259, -100]


def test_a_head_that_looks_back_looks_by_the_length_of_the_draft(
    recipe: dict[str, ModuleType],
) -> None:
    import torch

    torch.manual_seed(0)
    nano = recipe["model"]
    model = nano.Nano(nano.NanoConfig(**TINY)).eval()
    nano.look_back(model, (0,))
    model.watch((0,))
    room = model.config.draft_length
    with torch.no_grad():
        model.decode(torch.zeros(1, 3, model.config.width), torch.full((1, room + 21), 65))
    (scores,) = model.pointers()
    first = 3 + 2
    for step in range(20):
        query = first + room + step
        assert int(scores[0, query, : query + 1].argmax()) == query - room


@given(st.text("abc", max_size=20), st.text("abc", max_size=20))
def test_pointers_show_the_bytes_to_copy_in_order(
    recipe: dict[str, ModuleType], draft: str, line: str
) -> None:
    places = recipe["objective"].pointer_targets(draft.encode(), line.encode())
    assert len(places) == len(line) + 1 and places[-1] == len(draft)
    known = [place for place in places if place >= 0]
    assert known == sorted(set(known))
    if draft == line:
        assert places == list(range(len(line) + 1))


def test_verified_writing_equals_writing_byte_by_byte(recipe: dict[str, ModuleType]) -> None:
    import torch

    model_module, evaluate = recipe["model"], recipe["evaluate"]
    for seed in range(4):
        torch.manual_seed(seed)
        model = model_module.Nano(model_module.NanoConfig(**TINY)).eval()
        torch.nn.init.normal_(model.model.embed_tokens.weight, 0, 0.3)
        with torch.no_grad():
            tokens, _ = model.visual(torch.randn(1, 28, 84))
            draft = bytes(random.Random(seed).randrange(32, 127) for _ in range(9))
            plain: list[int] = []
            while len(plain) < len(draft) + 32:
                prompt = model_module.pad_draft(draft, model.config.draft_length)
                text = torch.tensor([[*prompt, *plain]])
                plain.append(int(model.decode(tokens, text)[0, -1].argmax()))
                if plain[-1] == model_module.END:
                    break
        wanted = bytes(token for token in plain if token < 256)
        written, confidence = evaluate.write_line(model, tokens, draft)
        assert written[: len(wanted)] == wanted
        assert 0 < confidence <= 1


def test_auroc_and_calibration_of_known_cases(recipe: dict[str, ModuleType]) -> None:
    measures = recipe["measures"]
    assert measures.auroc([0.1, 0.2, 0.8, 0.9], [True, True, False, False]) == 1
    assert measures.auroc([0.9, 0.8, 0.2, 0.1], [True, True, False, False]) == 0
    assert measures.auroc([0.5, 0.5], [True, False]) == 0.5
    assert measures.calibration_error([0.95, 0.95], [1.0, 0.9]) == pytest.approx(0, abs=1e-9)
    assert measures.calibration_error([0.9, 0.9], [0.4, 0.4]) == pytest.approx(0.5)


def test_leaders_and_ligatures_are_no_reading(recipe: dict[str, ModuleType]) -> None:
    normalise = recipe["measures"].normalise
    for text in ("Index ....... 7", "Index . . . . . 7", "Index\n- - -- - -\n7", "Index 7"):
        assert normalise(text) == "Index 7"
    assert normalise("and so on ... 7") == "and so on ... 7"
    assert normalise("o\ufb03ce \ufb01re") == "office fire"


def test_readings_are_typed_as_their_truth_is(recipe: dict[str, ModuleType]) -> None:
    as_typed = recipe["measures"].as_typed
    read = "“Fathers,” he said, were never men-\ntioned, not in Baden-\nBaden"
    joined = "“Fathers,” he said, were never mentioned, not in Baden-\nBaden"
    assert as_typed(read, "“Fathers,” he said, were never mentioned") == joined
    assert as_typed(read, "“Fathers,” he said, were never men-\ntioned") == read
    assert as_typed(read, '"Fathers," he said').startswith('"Fathers," he said, were never menti')


def test_lines_are_found_by_their_words(recipe: dict[str, ModuleType]) -> None:
    holds_line = recipe["measures"].holds_line
    assert holds_line("one two three", "two  three") and holds_line("one two", "one")
    assert not holds_line("18,416 EUR", "8,416 EUR") and not holds_line("one two", "one too")
    assert holds_line("in the village", "in the vil-") and not holds_line("in the city", "the vil-")


def test_the_towers_attention_has_torchs_values_and_gradients(
    recipe: dict[str, ModuleType],
) -> None:
    import torch

    torch.manual_seed(0)
    fast = [torch.randn(2, 3, 20, 32).bfloat16().requires_grad_() for _ in range(3)]
    exact = [x.detach().float().requires_grad_() for x in fast]
    weight = torch.randn(2, 3, 20, 32)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = recipe["attention"].attend(*fast)
    wanted = torch.nn.functional.scaled_dot_product_attention(*exact)
    assert mixed.dtype == torch.bfloat16
    assert torch.allclose(mixed.float(), wanted, atol=0.03)
    (mixed.float() * weight).sum().backward()
    (wanted * weight).sum().backward()
    for ours, theirs in zip(fast, exact, strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert torch.allclose(ours.grad.float(), theirs.grad, atol=0.05)


def test_crops_are_evened_as_the_line_finder_does(recipe: dict[str, ModuleType]) -> None:
    from vlmcli.documents.lines.crops import _even

    chance = np.random.default_rng(0)
    for width in (30, 200, 431):
        strip = chance.integers(40, 220, (28, width)).astype(np.uint8)
        ours = recipe["degrade"].levels(strip.astype(np.float32)).astype(np.uint8)
        assert np.abs(ours.astype(int) - _even(strip)).max() <= 1


def test_comparison_pages_are_what_their_truth_says(
    recipe: dict[str, ModuleType], tmp_path: Path
) -> None:
    pages = recipe["pages"]
    for name in pages.SETS:
        (page,) = pages.make_set(name, tmp_path / "a", 1)
        (again,) = pages.make_set(name, tmp_path / "b", 1)
        assert len(page.truth.splitlines()) == pages.LINES
        assert page.truth == again.truth
        assert page.image.read_bytes() == again.image.read_bytes()
        held_out = {face.family.replace(" ", "") for face in pages.held_out_faces()}
        assert page.image.stem.rsplit("-", 1)[1] in held_out


def run_script(*arguments: str) -> str:
    """Run a script of the recipe; returns what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    answer = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.slow
def test_the_comparison_reads_pages_and_ends_with_json(
    recipe: dict[str, ModuleType], tmp_path: Path
) -> None:
    (page,) = recipe["pages"].make_set("held-out", tmp_path, 1)
    (tmp_path / "truth.txt").write_text(page.truth, encoding="utf-8")
    entry = {"kind": "scan_gt", "file": page.image.name, "gt": "truth.txt", "language": "en"}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(entry) + "\n")
    options = ["--sets", "scans", "--tools", "ours"]
    *table, last = run_script(str(RECIPE / "compare.py"), str(tmp_path), *options).splitlines()
    found = json.loads(last)
    row = found["sets"]["scans"]
    assert row["pages"] == 1 and 0 <= row["ours_cer"] < 50 and row["ours_cpu_s"] > 0
    assert found["confidence"]["lines"] >= recipe["pages"].LINES - 2
    assert f"{row['ours_cer']:.2f} %" in table[0]


@pytest.mark.slow
def test_from_nothing_to_a_checkpoint_that_resumes_and_exports(
    recipe: dict[str, ModuleType], tmp_path: Path
) -> None:
    import torch

    run = tmp_path / "run"
    common = ["--out", str(run), "--threads", "1", "--log-steps", "1", "--device", "cpu"]
    common += ["--batch-tokens", "40", "--config", json.dumps(TINY)]
    run_script(str(RECIPE / "train.py"), "--minutes", "0.1", *common)
    first = torch.load(run / "checkpoint.pt", weights_only=True)
    assert first["step"] > 0 and first["characters"] > 0
    run_script(str(RECIPE / "train.py"), "--minutes", "0.2", "--resume", *common)
    second = torch.load(run / "checkpoint.pt", weights_only=True)
    assert second["step"] > first["step"]
    assert second["seconds"] >= 0.2 * 60
    steps = [json.loads(row)["step"] for row in (run / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    run_script(str(RECIPE / "export.py"), str(run / "checkpoint.pt"), str(tmp_path / "hf"))
    model = recipe["export"].load_checkpoint(run / "checkpoint.pt")
    again = recipe["model"].Nano(model.config)
    recipe["export"].load_into(again, tmp_path / "hf")
    for name, value in again.state_dict().items():
        if not name.startswith("column_head."):
            assert torch.allclose(value, model.state_dict()[name], atol=2e-3), name
