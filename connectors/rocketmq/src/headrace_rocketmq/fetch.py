"""What to pull from one queue, and when: keeps several pulls in flight, and their answers in order.

A broker gives at most 32 messages per pull, whatever is requested. If each pull waited for the answer to the one before, broker
and client would be idle in turn. Without a filter the start of each pull can be predicted: 32 further each time.

    offsets      0        32        64        96     latest
    pulls        [ first  ][ second ][ third  ][ fourth ]          up to `window` of them
    answers      done ──▶  here      —         here                given out in order only

An answer that is shorter than predicted (a broker limits bytes, too) leaves a gap, which one more pull fills. After the newest
message there is only one pull, which the broker holds until a message comes.

No input or output here: `due_pulls` says what to send, `Pull.outcome` is set when the answer comes, `collect` gives it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headrace_rocketmq.codes import ResponseCode
from headrace_rocketmq.errors import OffsetOutOfRangeError, ProtocolError, RocketMQError, broker_error
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.routes import MessageQueue


@dataclass(slots=True, eq=False)
class Pull:
    """One pull, from the moment that it is wanted."""

    offset: int
    messages_max: int
    suspend: bool
    """Whether the broker holds it while there is no message."""
    is_probe: bool = False
    """Whether it is the first after a failure: it is not held, so that the recovery of the broker is noticed soon."""
    is_due: bool = True
    """Whether it is still to be sent."""
    outcome: Frame | RocketMQError | None = None
    """Set by the thread that reads the connection; the answer, or why there is none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One pull's answer: messages from `offset` on, up to but not including `next_offset`, maybe none."""

    offset: int
    next_offset: int
    body: bytes
    earliest_offset: int
    latest_offset: int
    suggested_broker_id: int


class QueueFetch:
    """The pulls of one queue. Used by one thread, except `Pull.outcome`."""

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        end_offset: int | None = None,
        window: int,
        pull_messages_max: int,
        is_dense: bool,
    ) -> None:
        """Begin at `offset`; stop before `end_offset`, if that is given. `is_dense`: no filter, so pulls can be predicted."""
        self.queue = queue
        self.position = offset
        """The offset at which the next answer begins."""
        self.end_offset = end_offset
        self.made_progress = True
        """Whether the last answer moved the position, or the broker held the pull: pull again at once then."""
        self._window = window if is_dense else 1
        self._pull_messages_max = pull_messages_max
        self._stride = pull_messages_max
        self._is_dense = is_dense
        self._latest = offset
        self._pulls: deque[Pull] = deque()
        self._is_probing = False

    @property
    def is_finished(self) -> bool:
        """Whether the end offset is reached."""
        return self.end_offset is not None and self.position >= self.end_offset

    def due_pulls(self) -> list[Pull]:
        """The pulls to send now; they count as sent. Called before each wait and each decoding."""
        pulls = self._pulls
        if self.is_finished:
            return []
        known_end = self._latest if self.end_offset is None else min(self._latest, self.end_offset)
        tail = pulls[-1].offset + pulls[-1].messages_max if pulls else self.position
        while len(pulls) < self._window and tail < known_end:
            pulls.append(self._pull(tail, self._stride, suspend=not self._is_dense))
            tail += pulls[-1].messages_max
        if not pulls:
            pulls.append(self._pull(self.position, self._pull_messages_max, suspend=not self._is_probing))
            pulls[-1].is_probe, self._is_probing = self._is_probing, False
        due = [pull for pull in pulls if pull.is_due]
        for pull in due:
            pull.is_due = False
        return due

    def _pull(self, offset: int, messages_max: int, *, suspend: bool) -> Pull:
        if self.end_offset is not None:
            messages_max = min(messages_max, self.end_offset - offset)
        return Pull(offset, max(1, messages_max), suspend)

    @property
    def messages_bound(self) -> int:
        """The maximum number of messages of the next answer; 0 if it has not come yet."""
        pull = self._pulls[0] if self._pulls else None
        return 0 if pull is None or pull.outcome is None else pull.messages_max

    def collect(self) -> Answer | None:
        """The next answer, if it has come; moves the position after it.

        Raises the error of the pull; then the fetch is as if no pull had been sent, and can continue.
        """
        if not self._pulls or self._pulls[0].outcome is None:
            return None
        pull = self._pulls.popleft()
        assert pull.outcome is not None
        try:
            if isinstance(pull.outcome, RocketMQError):
                raise pull.outcome
            answer = self._interpret(pull, pull.outcome)
        except RocketMQError:
            self.restart(self.position)
            self._is_probing = True
            raise
        was_held = (pull.suspend or pull.is_probe) and pull.outcome.code == ResponseCode.PULL_NOT_FOUND
        self.made_progress = answer.next_offset != pull.offset or was_held
        self._advance(pull, answer)
        return answer

    def restart(self, offset: int) -> None:
        """Drop all pulls and continue at `offset`. Called after failures and to seek."""
        self._pulls.clear()
        self.position = offset
        self._latest = offset
        self._stride = self._pull_messages_max
        self.made_progress = True

    def _interpret(self, pull: Pull, frame: Frame) -> Answer:
        fields = frame.fields
        try:
            next_offset = int(fields.get("nextBeginOffset", pull.offset))
            answer = Answer(
                offset=pull.offset,
                next_offset=next_offset,
                body=frame.body if frame.code == ResponseCode.SUCCESS else b"",
                earliest_offset=int(fields.get("minOffset", 0)),
                latest_offset=int(fields.get("maxOffset", next_offset)),
                suggested_broker_id=int(fields.get("suggestWhichBrokerId", 0)),
            )
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"the broker's answer to a pull of {self.queue} cannot be read: {fields}") from error
        match frame.code:
            case ResponseCode.SUCCESS | ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY:
                if next_offset < pull.offset or (frame.code == ResponseCode.SUCCESS and next_offset == pull.offset):
                    raise ProtocolError(f"the broker went from offset {pull.offset} of {self.queue} to {next_offset}")
                return answer
            case ResponseCode.PULL_OFFSET_MOVED:
                raise OffsetOutOfRangeError(
                    self.queue,
                    pull.offset,
                    earliest=answer.earliest_offset,
                    latest=answer.latest_offset,
                    suggested=next_offset,
                    remark=frame.remark or "no reason given",
                )
            case code:
                raise broker_error(code, frame.remark, address=self.queue.broker_name, operation=f"pull {self.queue}")

    def _advance(self, pull: Pull, answer: Answer) -> None:
        next_offset = answer.next_offset
        advanced = next_offset - pull.offset
        self.position = next_offset if self.end_offset is None else min(next_offset, self.end_offset)
        # Without progress no message is known to exist, so the broker may hold the next pull.
        self._latest = answer.latest_offset if advanced else next_offset
        if answer.body and advanced < pull.messages_max and next_offset < self._latest:
            self._stride = max(1, advanced)  # large messages: predict shorter answers
        elif advanced >= self._stride:
            self._stride = min(self._pull_messages_max, self._stride * 2)
        while self._pulls and self._pulls[0].offset < next_offset:
            self._pulls.popleft()
        if self._pulls and self._pulls[0].offset > next_offset:
            missing = self._pulls[0].offset - next_offset
            self._pulls.appendleft(Pull(next_offset, min(missing, self._pull_messages_max), suspend=False))
