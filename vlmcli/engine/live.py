"""An unfinished request as its caller sees it: text so far, counts, its share of the time."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from operator import itemgetter

from vlmcli.engine.interfaces import Detokenizer
from vlmcli.engine.request import RequestOutput, StageSeconds
from vlmcli.engine.sequence import Sequence
from vlmcli.engine.step import EncodeJob, ScheduledSequence


@dataclass(slots=True)
class Live:
    """An unfinished request: its sequence and its text so far."""

    sequence: Sequence
    detokenizer: Detokenizer
    text: str = ""

    def output(self) -> RequestOutput:
        """The request as it stands."""
        sequence = self.sequence
        drafter = sequence.drafter
        counts = drafter.counts() if drafter is not None else {}
        agreement = drafter.agreement() if drafter is not None else {}
        guessed, right = max(agreement.values(), key=itemgetter(1), default=(0, 0))
        return RequestOutput(
            request_id=sequence.request_id,
            token_ids=tuple(sequence.output_token_ids.tolist()),
            text=self.text,
            finished=sequence.is_finished,
            finish_reason=sequence.finish_reason,
            logprobs=tuple(sequence.logprobs),
            num_prompt_tokens=sequence.num_prompt_tokens,
            num_visual_tokens=sequence.num_visual_tokens,
            num_cached_tokens=sequence.num_cached_tokens,
            num_drafted=guessed,
            num_accepted=right,
            agreement=agreement,
            drafted={name: count[0] for name, count in counts.items()},
            accepted={name: count[1] for name, count in counts.items()},
            seconds=StageSeconds(
                encode=sequence.seconds[0], prefill=sequence.seconds[1], decode=sequence.seconds[2]
            ),
        )


def share_time(items: Seq[ScheduledSequence], elapsed: float) -> int:
    """Book the seconds of a decoder batch on its sequences, row by row; returns the rows."""
    num_rows = sum(item.num_query_tokens for item in items)
    per_row = elapsed / num_rows
    for item in items:
        num_prefill = item.num_tokens if item.num_tokens > 1 or not item.wants_logits else 0
        item.sequence.seconds[1] += per_row * num_prefill
        item.sequence.seconds[2] += per_row * (item.num_query_tokens - num_prefill)
    return num_rows


def share_encoding(live: Mapping[str, Live], jobs: Seq[EncodeJob], seconds: float) -> None:
    """Put the time of an encoder batch on those of its owners that are still there, by tokens."""
    per_token = seconds / sum(job.num_tokens for job in jobs)
    for job in jobs:
        for owner in live.keys() & set(job.owners):
            share = per_token * job.num_tokens / len(job.owners)
            live[owner].sequence.seconds[0] += share
