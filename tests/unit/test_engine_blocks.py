"""Block manager and vision-KV cache: sharing, retention, quotas, and nothing ever lost."""

import hashlib

import pytest
from engine_fakes import IMAGE_TOKEN, make_request, picture
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vlmcli.engine.block_manager import BlockManager
from vlmcli.engine.positions import rope_positions
from vlmcli.engine.request import ImageInput
from vlmcli.engine.sequence import Sequence
from vlmcli.engine.vision_kv import VisionKVCache

BYTES = 10
FEW = st.integers(0, 3)
MANY = st.integers(0, 30)


def make_sequence(parts: list, *, max_tokens: int = 8, arrival: int = 0) -> Sequence:
    request = make_request(f"r{arrival}", parts, max_tokens=max_tokens)
    positions, delta = rope_positions(len(request.prompt_token_ids))
    return Sequence(request, arrival=arrival, positions=positions, position_delta=delta)


def make_manager(
    num_blocks: int = 40, *, block_size: int = 4, cap: int = 10, quotas: dict | None = None
) -> BlockManager:
    cache = VisionKVCache(cap * BYTES, {"vision": BYTES, "text": BYTES})
    return BlockManager(num_blocks, block_size, cache=cache, quotas=quotas)


def admit(manager: BlockManager, sequence: Sequence) -> int:
    """Allocate, compute and register the whole prompt; returns the cached tokens."""
    hits = manager.match_prefix(sequence)
    assert manager.can_allocate(sequence, hits)
    manager.allocate(sequence, hits)
    manager.register(sequence, sequence.num_tokens)
    return len(hits) * manager.block_size


def test_equal_prefixes_share_blocks_and_leave_a_token_to_compute() -> None:
    manager = make_manager()
    one = make_sequence([1, 2, 3, 4, 5, 6, 7, 8])
    two = make_sequence([1, 2, 3, 4, 5, 6, 7, 8], arrival=1)
    assert admit(manager, one) == 0
    assert admit(manager, two) == 4, "the second full block holds the last token"
    assert one.block_table[0] == two.block_table[0]
    assert one.block_table[1] != two.block_table[1]
    manager.check_integrity([one, two])
    manager.free(one)
    manager.check_integrity([two])
    manager.free(two)
    assert manager.num_free_blocks == manager.num_usable_blocks, "text prefixes are not retained"


def test_the_null_block_is_never_handed_out() -> None:
    manager = make_manager(num_blocks=4)
    sequence = make_sequence([1] * 12)
    admit(manager, sequence)
    assert sorted(sequence.block_table) == [1, 2, 3]


@pytest.mark.parametrize(
    ("other", "is_shared"),
    [
        ([7, picture(0, 1, 11), 5], True),
        ([8, picture(0, 1, 11), 5], False),
        ([7, picture(1, 1, 11), 5], False),
        ([picture(0, 1, 11), 7, 5], False),
        ([7, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 5], False),
    ],
    ids=["same", "other text before", "other image", "other offset", "no image, equal token ids"],
)
def test_a_hit_needs_the_same_image_at_the_same_place(other: list, is_shared: bool) -> None:
    manager = make_manager()
    admit(manager, make_sequence([7, picture(0, 1, 11), 5]))
    assert admit(manager, make_sequence(other, arrival=1)) == (12 if is_shared else 0)


def test_one_image_split_in_two_is_another_prefix_than_the_whole() -> None:
    manager = make_manager()
    half = picture(0, 1, 4)
    admit(manager, make_sequence([half, half, 5]))
    whole = ImageInput(pixels=picture(0, 1, 8).pixels, mm_hash=half.mm_hash)
    assert admit(manager, make_sequence([whole, 5], arrival=1)) == 0


def test_the_offset_of_an_image_counts_even_where_all_token_ids_are_equal() -> None:
    manager = make_manager()
    admit(manager, make_sequence([IMAGE_TOKEN, picture(0, 1, 7), 5]))
    assert admit(manager, make_sequence([picture(0, 1, 7), IMAGE_TOKEN, 5], arrival=1)) == 0


def test_digests_that_differ_in_the_last_byte_do_not_hit() -> None:
    manager = make_manager()
    pixels = picture(0, 2, 4).pixels
    digest = hashlib.sha256(b"x").digest()
    near = digest[:-1] + bytes([digest[-1] ^ 1])
    admit(manager, make_sequence([ImageInput(pixels=pixels, mm_hash=digest), 1]))
    other = make_sequence([ImageInput(pixels=pixels, mm_hash=near), 1], arrival=1)
    assert admit(manager, other) == 0


def test_image_prefixes_outlive_their_sequence_up_to_the_cap() -> None:
    manager = make_manager(cap=4)
    for code in range(6):
        sequence = make_sequence([picture(code, 2, 4), 1, 2], arrival=code)
        assert admit(manager, sequence) == 0
        manager.free(sequence)
        manager.check_integrity([])
        assert manager.cache.num_bytes <= 4 * BYTES
    assert manager.cache.num_idle == 4
    for code, cached in [(5, 8), (4, 8), (3, 0)]:
        again = make_sequence([picture(code, 2, 4), 3], arrival=10 + code)
        assert len(manager.match_prefix(again)) * 4 == cached


def test_an_oversize_image_is_not_kept_and_evicts_nothing() -> None:
    manager = make_manager(cap=4)
    small = make_sequence([picture(0, 2, 4), 1])
    admit(manager, small)
    manager.free(small)
    before = manager.cache.idle_ids()
    huge = make_sequence([picture(1, 5, 5), 1], arrival=1)
    admit(manager, huge)
    manager.free(huge)
    assert manager.cache.idle_ids() == before and len(before) == 2


def test_blocks_in_use_are_pinned() -> None:
    manager = make_manager(cap=2)
    first = make_sequence([picture(0, 2, 4), 1])
    admit(manager, first)
    manager.free(first)
    user = make_sequence([picture(0, 2, 4), 2], arrival=1)
    assert admit(manager, user) == 8
    other = make_sequence([picture(1, 2, 4), 2], arrival=2)
    admit(manager, other)
    manager.free(other)
    manager.check_integrity([user])
    assert manager.cache.pinned_ids() == set(user.block_table[:2])
    assert manager.cache.num_idle == 0, "there was no room beside the pinned blocks"


def test_retained_blocks_give_way_to_the_living() -> None:
    manager = make_manager(num_blocks=8, cap=5)
    page = make_sequence([picture(0, 2, 8), 1], max_tokens=1)
    admit(manager, page)
    manager.free(page)
    assert manager.cache.num_idle == 4
    text = make_sequence([1] * 28, max_tokens=1, arrival=1)
    admit(manager, text)
    manager.check_integrity([text])
    assert manager.cache.num_idle == 0 and len(text.block_table) == 7


def test_vision_blocks_stay_within_their_quota() -> None:
    manager = make_manager(num_blocks=20, quotas={"vision": 4})
    one = make_sequence([picture(0, 3, 4), 1])
    admit(manager, one)
    two = make_sequence([picture(1, 2, 4), 1], arrival=1)
    assert not manager.can_allocate(two, [])
    manager.free(one)
    assert manager.cache.num_idle_of("vision") == 3
    admit(manager, two)
    manager.check_integrity([two])
    assert not manager.fits_alone(make_sequence([picture(2, 5, 4), 1], arrival=2))


def test_trim_returns_exactly_the_blocks_of_rejected_drafts() -> None:
    manager = make_manager()
    sequence = make_sequence([1, 2, 3, 4, 5])
    admit(manager, sequence)
    free = manager.num_free_blocks
    assert manager.grow(sequence, 23)
    assert len(sequence.block_table) == 6
    manager.trim(sequence, 8)
    assert len(sequence.block_table) == 2 and manager.num_free_blocks == free
    manager.check_integrity([sequence])


def test_growth_that_does_not_fit_changes_nothing() -> None:
    manager = make_manager(num_blocks=4)
    sequence = make_sequence([1, 2, 3, 4, 5], max_tokens=40)
    admit(manager, sequence)
    assert not manager.grow(sequence, 17)
    assert len(sequence.block_table) == 2 and manager.num_free_blocks == 1


def test_a_failed_step_is_forgotten() -> None:
    manager = make_manager()
    sequence = make_sequence([1, 2, 3, 4, 5, 6, 7, 8, 9])
    manager.allocate(sequence, [])
    manager.register(sequence, 4)
    sequence.num_computed_tokens = 4
    manager.register(sequence, 9)
    manager.forget(sequence, 4)
    twin = make_sequence([1, 2, 3, 4, 5, 6, 7, 8, 9], arrival=1)
    assert manager.match_prefix(twin) == sequence.block_table[:1]
    manager.check_integrity([sequence])


class BlockMachine(RuleBasedStateMachine):
    """Random allocation, growth, rollback and release over a few images."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = make_manager(num_blocks=24, cap=7, quotas={"vision": 14})
        self.sequences: list[Sequence] = []
        self.arrival = 0

    @rule(
        code=st.integers(0, 3),
        size=st.integers(1, 9),
        head=st.integers(0, 3),
        tail=st.integers(0, 3),
    )
    def admit(self, code: int, size: int, head: int, tail: int) -> None:
        self.arrival += 1
        sequence = make_sequence(
            [*range(head), picture(code, 2, size), *range(tail)],
            max_tokens=30,
            arrival=self.arrival,
        )
        hits = self.manager.match_prefix(sequence)
        if self.manager.can_allocate(sequence, hits):
            self.manager.allocate(sequence, hits)
            self.manager.register(sequence, sequence.num_tokens)
            self.sequences.append(sequence)

    @precondition(lambda self: self.sequences)
    @rule(
        which=st.integers(0, 100),
        grown=st.integers(0, 30),
        kept=st.integers(0, 30),
        evict=st.booleans(),
    )
    def verify_a_draft(self, which: int, grown: int, kept: int, evict: bool) -> None:
        sequence = self.sequences[which % len(self.sequences)]
        before = list(sequence.block_table)
        if self.manager.grow(sequence, sequence.num_tokens + grown, evict=evict):
            self.manager.trim(sequence, sequence.num_tokens + min(grown, kept))
        else:
            assert sequence.block_table == before

    @precondition(lambda self: self.sequences)
    @rule(which=MANY)
    def free(self, which: int) -> None:
        self.manager.free(self.sequences.pop(which % len(self.sequences)))

    @invariant()
    def nothing_is_lost(self) -> None:
        self.manager.check_integrity(self.sequences)

    def teardown(self) -> None:
        for sequence in self.sequences:
            self.manager.free(sequence)
        self.manager.check_integrity([])
        assert self.manager.num_available_blocks == self.manager.num_usable_blocks


TestBlockMachine = BlockMachine.TestCase
TestBlockMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
