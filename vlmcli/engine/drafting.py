"""Draft tokens for a sequence of the next step, where budget and free blocks allow. Integers."""

from vlmcli.engine.block_manager import BlockManager
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.step import ScheduledSequence


def add_draft(
    item: ScheduledSequence,
    blocks: BlockManager,
    config: EngineConfig,
    *,
    budget: int,
    overhead: float,
) -> int:
    """Have a scheduled sequence's drafter propose; nothing retained is evicted for a draft.

    Args:
        item: takes the draft.
        blocks: the pool; the sequence's blocks are made to hold the draft.
        config: the longest draft.
        budget: rows that are left in the step.
        overhead: fixed cost of a step in rows, this sequence's share.

    Returns:
        Tokens drafted.
    """
    sequence = item.sequence
    if sequence.drafter is None:
        return 0
    room = (len(sequence.block_table) + blocks.num_blank_text_blocks) * blocks.block_size
    limit = min(
        budget,
        config.max_draft_tokens,
        sequence.num_remaining_tokens - 1,
        room - sequence.num_tokens,
    )
    if limit <= 0:
        return 0
    draft = sequence.drafter.propose(limit, overhead)
    num_draft = len(draft.token_ids)
    if not num_draft or not blocks.grow(sequence, sequence.num_tokens + num_draft, evict=False):
        return 0
    item.draft = draft
    return num_draft
