"""Who is encoded and who is computed next, decided with integers.

Three queues, each in order of arrival: sequences whose next image has no embedding, sequences with
prompt tokens to compute, sequences that decode. A step is either one encoder batch or one decoder
batch. Decoding sequences always get their row first; what is left of the token budget goes to
drafts and to prompts. An encoder batch runs when seats are empty, or whenever it runs beside the
decoder, but at most every other step while anything decodes, so neither side starves. When blocks
run out the youngest owner is preempted, to be computed again or copied back later; an older
sequence never waits for a younger one. Every call makes progress, waits for the encoder, or
asserts. Knows no tensors, no clock and no text.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from vlmcli.engine.block_manager import BlockManager
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.drafting import add_draft
from vlmcli.engine.drafts import TURN_ROWS
from vlmcli.engine.encode_plan import plan_encode
from vlmcli.engine.encoder_cache import EncoderCache
from vlmcli.engine.request import FinishReason, ImageInput, RequestTooLargeError
from vlmcli.engine.sequence import Sequence, SequenceStatus
from vlmcli.engine.step import EncodeJob, ScheduledSequence, SchedulerOutput
from vlmcli.engine.swap import SwapSpace


class Scheduler:
    """Moves sequences between its queues under the budgets of the config.

    Args:
        config: limits in sequences and tokens.
        blocks: the paged pool.
        embeddings: the encoder cache; it holds opaque values here.
        swap: host memory for what preempted sequences have computed.
        embedding_bytes: bytes of one visual token's embedding.
        overhead_rows: fixed cost of a decoder pass in rows, shared by its sequences; it sets how
            far drafts reach.
        encodes_beside: whether images are encoded while the decoder works, so that it is worth to
            encode for sequences that have no seat yet, as far as the cache has room.
        on_open: called with a sequence whose prompt is open; takes note of the drafts at hand.
        on_admit: called with a sequence when it has got its blocks, before anything is drafted.
    """

    def __init__(
        self,
        config: EngineConfig,
        blocks: BlockManager,
        embeddings: EncoderCache[Any],
        swap: SwapSpace,
        *,
        embedding_bytes: int,
        overhead_rows: float,
        encodes_beside: bool = False,
        on_open: Callable[[Sequence], None] = lambda _: None,
        on_admit: Callable[[Sequence], None] = lambda _: None,
    ) -> None:
        assert config.max_num_batched_tokens >= config.max_num_seqs
        self.config = config
        self.blocks = blocks
        self.embeddings = embeddings
        self.swap = swap
        self.num_preemptions = 0
        self.num_images_shown = 0
        """Images whose tokens were computed, or found computed already."""
        self._embedding_bytes = embedding_bytes
        self._overhead_rows = overhead_rows
        self._encodes_beside = encodes_beside
        self._on_open = on_open
        self._on_admit = on_admit
        self._queues: dict[SequenceStatus, list[Sequence]] = {
            SequenceStatus.ENCODING: [],
            SequenceStatus.PREFILLING: [],
            SequenceStatus.DECODING: [],
        }
        self._running: list[Sequence] = []
        """Owners of blocks, oldest first."""
        self._has_just_encoded = False

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[Sequence]:
        return chain.from_iterable(self._queues.values())

    def queue_lengths(self) -> dict[str, int]:
        """Sequences by queue name."""
        return {status.value: len(queue) for status, queue in self._queues.items()}

    def add(self, sequence: Sequence) -> None:
        """Take a new sequence.

        Raises:
            RequestTooLargeError: it could not run to its last token even alone.
        """
        if not self.blocks.fits_alone(sequence):
            size = self.blocks.block_size
            raise RequestTooLargeError(
                f"request {sequence.request_id} needs {len(sequence.token_ids)} KV tokens, "
                f"the pool holds {self.blocks.num_usable_blocks * size}",
                remedy="fewer pixels, fewer new tokens, or more memory for the KV cache",
            )
        if sequence.is_open:
            self._on_open(sequence)
        self._enqueue(sequence, self._status_of(sequence))

    def schedule(self) -> SchedulerOutput:
        """Choose the next step. Only while there are sequences.

        Nothing is chosen where all that is left to do waits for images that are being encoded.
        """
        assert len(self), "nothing to schedule"
        output = self._plan()
        if output is None and self.embeddings.is_expecting:
            return SchedulerOutput()
        if output is None:
            self._make_way()
            output = self._plan()
        assert output is not None, f"no progress possible: {list(self)}"
        self._has_just_encoded = bool(output.encode)
        return replace(output, transfers=self.swap.take()) if output.batch else output

    def encoded(self, jobs: Seq[EncodeJob], values: Seq[object]) -> None:
        """Take in the results of an encoder batch, parallel to its jobs.

        Whoever asked for an image may be gone by now, and others may wait for it.
        """
        here = {sequence.request_id for sequence in self}
        for job, value in zip(jobs, values, strict=True):
            num_bytes = job.num_tokens * self._embedding_bytes
            self.embeddings.put(job.image.mm_hash, value, num_bytes, job.owners)
            for owner in job.owners:
                if owner not in here:
                    self.embeddings.unpin(job.image.mm_hash, owner)
        images = {job.image.mm_hash for job in jobs}
        for sequence in [*self._queues[SequenceStatus.ENCODING]]:
            if any(image.mm_hash in images for image in sequence.request.images):
                self._place(sequence)

    def computed(
        self, item: ScheduledSequence, num_accepted: int, tokens: list[int], logprobs: list[float]
    ) -> None:
        """Record a sequence's share of a decoder batch that has been executed.

        Args:
            item: what was scheduled.
            num_accepted: draft tokens that were right.
            tokens: new tokens: the accepted draft, then the model's own; cut at a stop token; empty
                where no logits were wanted.
            logprobs: parallel to `tokens`, or empty.
        """
        sequence = item.sequence
        sequence.num_computed_tokens = item.start + item.num_tokens + min(num_accepted, len(tokens))
        self._release_images(sequence, item.start)
        if tokens:
            sequence.append(tokens, logprobs)
            sequence.num_computed_tokens = min(
                sequence.num_computed_tokens, sequence.num_tokens - 1
            )
            self.blocks.trim(sequence, sequence.num_tokens)
            if sequence.drafter is not None:
                sequence.drafter.observe(
                    item.draft, num_accepted, sequence.output_token_ids, len(tokens)
                )
        self._place(sequence)

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """End a sequence and take everything back that it holds."""
        self._queues[sequence.status].remove(sequence)
        self._let_go(sequence)
        self.swap.drop(sequence)
        sequence.status = SequenceStatus.FINISHED
        sequence.finish_reason = reason
        if sequence.drafter is not None:
            sequence.drafter.close()

    def rollback(self, output: SchedulerOutput) -> None:
        """A decoder batch failed: nothing it would have written or copied may be found or used."""
        empty = self.swap.undo(output.transfers, [*self])
        for item in output.batch:
            size = self.blocks.block_size
            start = empty.get(item.sequence.request_id)
            self.blocks.forget(item.sequence, item.start if start is None else start * size)
        for item in output.batch:
            self._preempt(item.sequence, is_valid=False)

    def check_integrity(self) -> None:
        """Assert that queues, blocks and embeddings agree with each other."""
        self.blocks.check_integrity(self)
        self.embeddings.check_integrity()
        self.swap.check_integrity({sequence.request_id: sequence for sequence in self})
        for status, queue in self._queues.items():
            arrivals = [sequence.arrival for sequence in queue]
            assert arrivals == sorted(set(arrivals))
            assert all(sequence.status is status for sequence in queue)
        assert self.embeddings.owners() <= {sequence.request_id for sequence in self}
        for sequence in self:
            assert sequence.num_computed_tokens < sequence.num_tokens <= len(sequence.token_ids)
            assert bool(sequence.block_table) or not sequence.num_computed_tokens
            assert not sequence.is_open or not sequence.block_table
            if sequence.status is SequenceStatus.DECODING:
                assert sequence.num_computed_tokens == sequence.num_tokens - 1

    def _plan(self) -> SchedulerOutput | None:
        if self._should_encode() and (jobs := self._plan_encode()):
            return SchedulerOutput(encode=jobs)
        if batch := self._plan_batch():
            return SchedulerOutput(batch=batch)
        if jobs := self._plan_encode():
            return SchedulerOutput(encode=jobs)
        return None

    def _should_encode(self) -> bool:
        encoding, prefilling, decoding = self._queues.values()
        if not encoding or (self._has_just_encoded and (prefilling or decoding)):
            return False
        return self._encodes_beside or len(prefilling) + len(decoding) < self.config.max_num_seqs

    def _plan_encode(self) -> tuple[EncodeJob, ...]:
        """Images for the oldest waiting sequences; none while others are being encoded."""
        if self.embeddings.is_expecting:
            return ()
        limit = self.config.max_encoder_tokens
        return plan_encode(self._wanted_images(), self.embeddings, limit, self._embedding_bytes)

    def _wanted_images(self) -> Iterator[tuple[Sequence, ImageInput, int]]:
        """Images to encode for each waiting sequence in turn, with their tokens.

        Of an open prompt those without a draft, of another those that are not computed yet; never
        one whose embedding is at hand.
        """
        for sequence in [*self._queues[SequenceStatus.ENCODING]]:
            self._place(sequence)
            if sequence.status is not SequenceStatus.ENCODING:
                continue
            images, places = sequence.request.images, sequence.request.placeholders
            if sequence.is_open:
                needed = [i for i, draft in enumerate(sequence.image_drafts) if draft is None]
            else:
                first = bisect_right(sequence.image_ends, self._num_known_computed(sequence))
                needed = [*range(first, len(images))]
            for i in needed:
                if images[i].mm_hash not in self.embeddings:
                    yield sequence, images[i], places[i].length

    def _plan_batch(self) -> tuple[ScheduledSequence, ...]:
        """Rows for every decoding sequence, their drafts, then prompt chunks, oldest first."""
        decoding = self._queues[SequenceStatus.DECODING]
        prefilling = self._queues[SequenceStatus.PREFILLING]
        batch: list[ScheduledSequence] = []
        for sequence in [*decoding]:
            if sequence.status is SequenceStatus.DECODING and self._grow(sequence):
                batch.append(ScheduledSequence(sequence, sequence.num_computed_tokens, 1))
        num_seqs = min(len(batch) + len(prefilling), self.config.max_num_seqs)
        draft = partial(add_draft, blocks=self.blocks, config=self.config)
        overhead = TURN_ROWS + self._overhead_rows / max(1, num_seqs)
        budget = self.config.max_num_batched_tokens - len(batch)
        draft_budget = budget // 2 if prefilling else budget
        for item in batch:
            draft_budget -= draft(item, budget=draft_budget, overhead=overhead)
        budget = self.config.max_num_batched_tokens - sum(i.num_query_tokens for i in batch)
        for sequence in [*prefilling]:
            if budget <= 0 or not self._may_prefill(sequence):
                break
            chunk = min(self._pin_images(sequence) - sequence.num_computed_tokens, budget)
            if chunk <= 0:
                self._place(sequence)
                continue
            item = ScheduledSequence(sequence, sequence.num_computed_tokens, chunk)
            self.blocks.register(sequence, item.start + chunk)
            budget -= chunk
            if item.wants_logits:
                budget -= draft(item, budget=budget, overhead=overhead)
            batch.append(item)
        return tuple(batch)

    def _may_prefill(self, sequence: Sequence) -> bool:
        """Whether the sequence has blocks for its prompt, or gets them now.

        Strictly in order of arrival: where this one does not fit, no younger one may overtake it.
        """
        if sequence.block_table:
            return True
        if len(self._running) >= self.config.max_num_seqs:
            return False
        hits = self.blocks.match_prefix(sequence)
        num_decoding = len(self._queues[SequenceStatus.DECODING])
        if not self.blocks.can_allocate(sequence, hits, reserve=num_decoding):
            return False
        self.blocks.allocate(sequence, hits)
        self.swap.restore(sequence, len(hits))
        insort(self._running, sequence, key=_arrival)
        self._release_images(sequence)
        self._on_admit(sequence)
        return True

    def _pin_images(self, sequence: Sequence) -> int:
        """Pin the images at hand; returns the index up to which tokens can be computed."""
        request = sequence.request
        first = bisect_right(sequence.image_ends, sequence.num_computed_tokens)
        for image, place in zip(request.images[first:], request.placeholders[first:], strict=True):
            if image.mm_hash not in self.embeddings:
                return place.offset
            self.embeddings.pin(image.mm_hash, sequence.request_id)
        return sequence.num_tokens

    def _release_images(self, sequence: Sequence, start: int = 0) -> None:
        """Let go of images whose tokens are all computed, the last of them since token `start`."""
        ends = sequence.image_ends
        last = bisect_right(ends, sequence.num_computed_tokens)
        self.num_images_shown += last - bisect_right(ends, start)
        for image in sequence.request.images[bisect_right(ends, start - 1) : last]:
            self.embeddings.unpin(image.mm_hash, sequence.request_id)

    def _grow(self, sequence: Sequence) -> bool:
        """Room for the newest token, taken from the youngest if need be, perhaps from itself."""
        while not self.blocks.grow(sequence, sequence.num_tokens):
            victim = self._running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence, *, is_valid: bool = True) -> None:
        """Take the blocks back; what is known is computed again later, or saved if it is valid."""
        if is_valid and sequence.num_computed_tokens:
            self.swap.save(sequence)
        self._let_go(sequence)
        sequence.num_computed_tokens = 0
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self._place(sequence)

    def _make_way(self) -> None:
        """Nothing could be scheduled: the oldest sequence gets what the others hold.

        Happens where younger sequences hold embeddings that they cannot use for want of blocks, or
        blocks that they cannot use for want of an embedding. The oldest keeps its own embeddings
        unless it is an embedding that it lacks, or the two would be taken away in turn for ever.
        """
        oldest = min(self, key=_arrival)
        for sequence in [*self]:
            if sequence is not oldest and sequence.block_table:
                self._preempt(sequence)
            if sequence is not oldest or oldest.status is SequenceStatus.ENCODING:
                self._unpin(sequence)
        for sequence in [*self]:
            self._place(sequence)
        self._has_just_encoded = False

    def _let_go(self, sequence: Sequence) -> None:
        if sequence.block_table:
            self.blocks.free(sequence)
            self._running.remove(sequence)
        self._unpin(sequence)

    def _unpin(self, sequence: Sequence) -> None:
        for image in sequence.request.images:
            self.embeddings.unpin(image.mm_hash, sequence.request_id)

    def _num_known_computed(self, sequence: Sequence) -> int:
        """Tokens that need no computing: done, or found in cache or swap if admitted now."""
        if sequence.block_table:
            return sequence.num_computed_tokens
        return self.swap.num_tokens(sequence, len(self.blocks.match_prefix(sequence)))

    def _place(self, sequence: Sequence) -> None:
        """Put the sequence into the queue where it belongs now."""
        if sequence.is_open:
            self._on_open(sequence)
        status = self._status_of(sequence)
        if status is not sequence.status:
            self._queues[sequence.status].remove(sequence)
            self._enqueue(sequence, status)

    def _enqueue(self, sequence: Sequence, status: SequenceStatus) -> None:
        sequence.status = status
        insort(self._queues[status], sequence, key=_arrival)

    def _status_of(self, sequence: Sequence) -> SequenceStatus:
        if sequence.is_open:
            return SequenceStatus.ENCODING
        is_newest_left = sequence.num_computed_tokens == sequence.num_tokens - 1
        if is_newest_left and sequence.num_output_tokens and sequence.block_table:
            return SequenceStatus.DECODING
        next_image = bisect_right(sequence.image_ends, self._num_known_computed(sequence))
        images = sequence.request.images
        if next_image < len(images) and images[next_image].mm_hash not in self.embeddings:
            return SequenceStatus.ENCODING
        return SequenceStatus.PREFILLING


def _arrival(sequence: Sequence) -> tuple[int, int]:
    return sequence.arrival
