"""Many replicas behind a router, under a cost model: conversations, and who answers them.

Each replica is a `PagedServer`, the real scheduler and block manager with a prefix cache. A router
(`routing`) sends each request to one of them. All of it happens at simulated times, in the order of
one queue of events: a request arrives, or a replica ends a step. A replica that only decodes makes
all steps up to its next decision at once, as in `simulator`; when a request comes in between, it is
taken back to the step that is under way. So a thousand replicas cost little more than the work of
each. (What such steps evict, the router learns when they end, not step by step.)

Requests are turns of *conversations*. A turn's prompt is the conversation's system prompt, all that
was said before, and the user's new words; the next turn comes some time after the answer. Tokens
say only whose they are: -1 - s in system prompt s, and c in conversation c. So the last token of a
block, with its position, stands for the whole prefix, and `SimulatedPrefixCache` needs no hashes.

Two conversations share a system prompt of 64 tokens. The second one finds it cached where the first
one is:

>>> from reference.routing import longest_prefix, round_robin
>>> cost = StepCost(0.02, 0.0001)
>>> chats = [Conversation(0.0, 0, 64, (Turn(10, 5), Turn(10, 5, pause=1.0))),
...          Conversation(9.0, 0, 64, (Turn(10, 5),))]
>>> def answers(rule):
...     return simulate_replicas(chats, [ReplicaServer(1024) for _ in range(2)], rule, cost)
>>> [(one.replica, one.num_cached) for one in answers(longest_prefix)]
[(0, 0), (0, 64), (0, 64)]
>>> [(one.replica, one.num_cached) for one in answers(round_robin)]
[(0, 0), (1, 0), (0, 64)]
>>> [round(one.first_token_s, 4) for one in answers(longest_prefix)]   # 74, 25 and 10 tokens
[0.0274, 0.0225, 0.021]
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf

from reference.cost_model import StepCost, Work
from reference.prefix_cache import CachedBlock, Content, PrefixCache, Salt
from reference.routing import PrefixIndex, Router, Rule
from reference.scheduler_state import ScheduledSequence
from reference.simulated_paging import PagedServer
from reference.simulator import TraceRequest, steps_that_start_before

Key = tuple[Content, int]
"""A cached block, and its prefix: its last token, and the position behind that."""


@dataclass(frozen=True)
class Turn:
    """What a user says and is answered, in tokens, `pause` seconds after the answer before."""

    prompt_len: int
    output_len: int
    pause: float = 0.0


@dataclass(frozen=True)
class Conversation:
    """Turns behind a system prompt, the first of them at `start` seconds.

    Attributes:
        system, system_len: Which system prompt, and its length in tokens: the same for the same.
        history_len: Tokens that were said before the simulation, and are cached nowhere.
    """

    start: float
    system: int
    system_len: int
    turns: Sequence[Turn]
    history_len: int = 0


@dataclass(frozen=True)
class ChatRequest(TraceRequest):
    """A request of a conversation: its prefix is that system prompt."""

    conversation: int = 0
    system: int = 0


@dataclass
class Answer:
    """A request, and when it was answered.

    Attributes:
        conversation, turn: Their numbers.
        replica: Who computed it.
        arrival: When it came, in seconds after the start.
        prompt_len, output_len: Tokens.
        num_cached: Tokens of the prompt that were cached when it was first scheduled.
        first_token_s: From its arrival to its first token.
        latency_s: From its arrival to its last token.
    """

    conversation: int
    turn: int
    replica: int
    arrival: float
    prompt_len: int
    output_len: int
    num_cached: int = 0
    first_token_s: float = inf
    latency_s: float = inf

    @property
    def per_token_s(self) -> float:
        """Seconds a token, the first one apart; 0 of an output of one token."""
        return (self.latency_s - self.first_token_s) / max(1, self.output_len - 1)


class SimulatedPrefixCache(PrefixCache):
    """A prefix cache for tokens that say whose they are; it tells a router what it holds.

    The same hits as those of `PrefixCache`, in less time and memory, if every token of value v at
    position p is always behind the same tokens.
    """

    def __init__(self, block_size: int, replica: int, index: PrefixIndex) -> None:
        super().__init__(block_size)
        self.replica = replica
        self.index = index
        self._block_of: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}

    def lookup(
        self, token_ids: Sequence[Content], salt: Salt = None, prompt_len: int | None = None
    ) -> list[int]:
        blocks: list[int] = []
        for i, key in enumerate(keys_of(token_ids, self.block_size)):
            block = self._block_of.get(key)
            if block is None:
                break
            if prompt_len is not None and not self.is_own(block, i, prompt_len):
                break
            blocks.append(block)
        return blocks

    def offer(
        self,
        block: int,
        prefix: Sequence[Content],
        salt: Salt = None,
        prompt_len: int | None = None,
        *,
        is_mixed: bool = False,
    ) -> bool:
        key = (prefix[-1], len(prefix))
        if key in self._block_of:
            return False
        in_prompt = None if is_mixed else min(len(prefix), prompt_len or len(prefix))
        self._by_block[block] = CachedBlock(block, 0, (), salt, in_prompt)
        self._block_of[key], self._key_of[block] = block, key
        self.index.store(self.replica, key)
        return True

    def evict(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._by_block[block], self._block_of[key]
            self.index.remove(self.replica, key)

    def clear(self) -> None:
        for block in list(self._key_of):
            self.evict(block)


def keys_of(token_ids: Sequence[Content], block_size: int) -> Iterable[Key]:
    """The names of a prompt's full blocks, without the last token's: that must be computed."""
    for end in range(block_size, len(token_ids), block_size):
        yield token_ids[end - 1], end


class ReplicaServer(PagedServer):
    """A `PagedServer` with unified scheduling and a prefix cache, for requests of conversations."""

    def __init__(
        self,
        num_slots: int,
        *,
        block_size: int = 16,
        max_model_len: int = 2048,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 2048,
    ) -> None:
        super().__init__(
            num_slots,
            block_size=block_size,
            scheduling="unified",
            enable_prefix_caching=True,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        self.began: list[tuple[int, int]] = []
        """Requests that drew their first token in the last step; how much of each was cached."""

    def publish_to(self, index: PrefixIndex, replica: int) -> None:
        """Tell a router what is cached from now on. Nothing may be cached yet."""
        self.blocks.prefix_cache = SimulatedPrefixCache(self.blocks.block_size, replica, index)

    def _prompt(self, number: int, request: TraceRequest) -> list[int]:
        assert isinstance(request, ChatRequest)
        return prompt_of(request)

    def _draw(self, entry: ScheduledSequence) -> list[int]:
        if entry.num_samples and entry.seq.output_len == 0:
            self.began.append((int(entry.group.request_id), entry.group.num_cached_tokens))
        return super()._draw(entry)


def prompt_of(request: ChatRequest) -> list[int]:
    """System prompt, then the conversation."""
    own = request.prompt_len - request.prefix_len
    return [-1 - request.system] * request.prefix_len + [request.conversation] * own


class Replica:
    """A server and its time: what it does now, and until when.

    It is in a *stretch*: one step, or several that are all alike. `ends_at` is when that ends,
    infinite while there is nothing to do.
    """

    def __init__(self, server: ReplicaServer, cost: StepCost) -> None:
        self.server = server
        self.cost = cost
        self.ends_at = inf
        self._inbox: deque[tuple[int, ChatRequest]] = deque()
        self._ended: list[int] = []
        self._start = 0.0
        self._alike: int | None = None  # steps of this stretch, not made yet; None: one, and made
        self._work = Work()

    def send(self, number: int, request: ChatRequest, now: float) -> None:
        """Give it a request. A stretch of alike steps ends with the step that is under way."""
        self._inbox.append((number, request))
        if self.ends_at == inf:
            self._step(now)
        elif self._alike is not None:
            passed = now - self._start
            self._plan(steps_that_start_before(passed, self._alike, self._work, self.cost))

    def finish(self) -> tuple[list[tuple[int, int]], list[int]]:
        """End the stretch and begin the next.

        Returns requests that drew their first token in it, each with how much of its prompt was
        cached, and the requests that ended with it.
        """
        now, server = self.ends_at, self.server
        began, ended = server.began, self._ended
        server.began, self._ended = [], []
        alike = 0
        if self._alike is None:
            alike = 0 if self._inbox else server.num_alike()
        elif self._alike > 0:
            server.skip(self._alike)
        if alike > 0:
            self._start, self._work = now, server.peek()
            self._plan(alike)
        elif self._inbox or server.busy:
            self._step(now)
        else:
            self.ends_at = inf
        return began, ended

    def _plan(self, alike: int) -> None:
        self._alike = alike
        self.ends_at = self._start + self.cost.seconds(self._work, alike)

    def _step(self, now: float) -> None:
        while self._inbox and self.server.accepts:
            self.server.add(*self._inbox.popleft())
        done = self.server.step()
        self._alike, self._ended = None, done.ended
        self.ends_at = now + self.cost.seconds(done.work)


class _Simulation:
    """The queue of events: (time, number, turn of a conversation, or a replica's stretch ends)."""

    def __init__(
        self,
        conversations: Sequence[Conversation],
        servers: Sequence[ReplicaServer],
        rule: Rule,
        cost: StepCost,
    ) -> None:
        self.conversations = conversations
        self.replicas = [Replica(server, cost) for server in servers]
        self.loads = dict.fromkeys(range(len(servers)), 0)
        self.index = PrefixIndex()
        self.router = Router(rule)
        self.answers: list[Answer] = []
        self.events: list[tuple[float, int, int, int]] = []
        self._order = count()
        self.block_size = servers[0].blocks.block_size
        for number, server in enumerate(servers):
            server.publish_to(self.index, number)
        for number, conversation in enumerate(conversations):
            self._push(conversation.start, number, 0)

    def run(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            now, _, number, turn = heappop(self.events)
            if turn >= 0:
                self._arrive(now, number, turn)
            elif self.replicas[number].ends_at == now:  # else its stretch was cut, or began later
                self._finish(now, number)

    def _push(self, time: float, number: int, turn: int) -> None:
        heappush(self.events, (time, next(self._order), number, turn))

    def _arrive(self, now: float, number: int, turn: int) -> None:
        conversation = self.conversations[number]
        said = conversation.turns[turn]
        before = sum(one.prompt_len + one.output_len for one in conversation.turns[:turn])
        length = conversation.system_len + conversation.history_len + before + said.prompt_len
        request = ChatRequest(
            now,
            length,
            said.output_len,
            prefix_len=conversation.system_len,
            conversation=number,
            system=conversation.system,
        )
        blocks = self.index.matches(keys_of(prompt_of(request), self.block_size))
        matches = {one: depth * self.block_size for one, depth in blocks.items()}
        chosen = self.router.choose(self.loads, matches, length)
        self.loads[chosen] += 1
        replica, ends_at = self.replicas[chosen], self.replicas[chosen].ends_at
        replica.send(len(self.answers), request, now)
        if replica.ends_at != ends_at:
            self._push(replica.ends_at, chosen, -1)
        self.answers.append(Answer(number, turn, chosen, now, length, said.output_len))

    def _finish(self, now: float, replica: int) -> None:
        began, ended = self.replicas[replica].finish()
        for number, num_cached in began:
            self.answers[number].num_cached = num_cached
            self.answers[number].first_token_s = now - self.answers[number].arrival
        for number in ended:
            answer = self.answers[number]
            answer.latency_s = now - answer.arrival
            self.loads[replica] -= 1
            turns = self.conversations[answer.conversation].turns
            if answer.turn + 1 < len(turns):
                pause = turns[answer.turn + 1].pause
                self._push(now + pause, answer.conversation, answer.turn + 1)
        if self.replicas[replica].ends_at < inf:
            self._push(self.replicas[replica].ends_at, replica, -1)


def simulate_replicas(
    conversations: Sequence[Conversation],
    servers: Sequence[ReplicaServer],
    rule: Rule,
    cost: StepCost,
    *,
    until: float = inf,
) -> list[Answer]:
    """Serve conversations by fresh servers, all of them or until so many seconds have passed.

    Returns an answer for each request that arrived, in this order. What had not happened by then is
    at an infinite time.
    """
    simulation = _Simulation(conversations, servers, rule, cost)
    simulation.run(until)
    return simulation.answers
