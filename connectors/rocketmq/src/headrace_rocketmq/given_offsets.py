"""The option ``offsets``: where a job begins in queues without a committed offset or checkpoint."""

from __future__ import annotations

from collections.abc import Collection

from headrace.foundation.errors import OptionError, did_you_mean

from headrace_rocketmq.routes import MessageQueue
from headrace_rocketmq.settings import PLUGIN, RocketMQSourceSettings


class GivenOffsets:
    """The offsets of the option, by queue. Queues are written ``topic/broker/3``, or shorter if that is unambiguous.

    Without the topic (``broker/3``) if the source has one topic; as a number (3) if that topic is on one broker, which
    is known when the brokers have been asked for the queues.
    """

    def __init__(self, settings: RocketMQSourceSettings) -> None:
        """Raises OptionError for a text that cannot be a queue of the source's topics."""
        self._topics = settings.topics
        self._offsets = dict(settings.offsets or {})
        for name, offset in self._offsets.items():
            text = str(name)
            parts = text.split("/")
            topic = parts[0] if len(parts) == 3 else self._topics[0]
            is_short = len(parts) < 3
            if not parts[-1].isdecimal() or len(parts) > 3 or topic not in self._topics or "" in parts:
                raise self._no_queue(text)
            if is_short and len(self._topics) > 1:
                raise self._no_queue(text)
            if offset < 0:
                raise OptionError(f"the offset {offset} of {text!r} is negative", plugin=PLUGIN, option="offsets")

    def of(self, queue: MessageQueue) -> int | None:
        """Return the offset that is given for a queue, None if there is none."""
        names: list[str | int] = [str(queue)]
        if len(self._topics) == 1:
            names += [f"{queue.broker_name}/{queue.queue_id}", queue.queue_id, str(queue.queue_id)]
        return next((self._offsets[name] for name in names if name in self._offsets), None)

    def check(self, existing: Collection[MessageQueue]) -> None:
        """Raise OptionError for an offset of a queue that is not among those that exist, or that could be several."""
        for name in self._offsets:
            text = str(name)
            matching = [queue for queue in existing if f"/{queue}".endswith(f"/{text}")]
            if not matching:
                hint = did_you_mean(text, map(str, existing), known="queues")
                raise OptionError(f"there is no queue {text}", plugin=PLUGIN, option="offsets", hint=hint)
            if len(matching) > 1:
                raise OptionError(
                    f"{text} could be {' or '.join(map(str, sorted(matching)))}",
                    plugin=PLUGIN,
                    option="offsets",
                    hint=f"write it as {str(min(matching))!r}",
                )

    def _no_queue(self, text: str) -> OptionError:
        example = f"{self._topics[0]}/broker-a/0"
        return OptionError(
            f"{text!r} is not a queue of {', '.join(self._topics)}",
            plugin=PLUGIN,
            option="offsets",
            hint=f"write it as {example!r}" + (" or 0" if len(self._topics) == 1 else ""),
        )
