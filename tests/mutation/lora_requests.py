"""Bugs on the way of a request's adapter: its version, its slot, its row, and what it shares."""

from tests.mutation.planting import Mutant, plant

ADAPTER = ("tests/lora/test_adapter.py",)
REGISTRY = ("tests/lora/test_registry.py",)
REQUEST = ("tests/lora/test_request.py",)
SLOTS = ("tests/core/test_adapter_slots.py",)
ENGINE = ("tests/engine/test_adapters.py",)
FIELDS = ("tests/serving/fields/test_python_fields.py",)
ORACLE = ("tests/reference/test_adapter_slots.py", "reference/adapter_slots.py")

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/lora/adapter.py",
        ADAPTER,
        ("        return _module, (self.name, self.scaling, *packed)\n",
         "        return AdaptedModule.__new__, (AdaptedModule,), vars(self)\n",
         "an adapter out of a pickle is writable"),
        ('"bias": bias and _unpacked(*bias)', '"bias": None', "a pickle loses biases"),
        ("    vars(made).update(modules=modules, digest=digest)\n",
         "    vars(made).update(modules=modules, digest=_digest(modules))\n",
         "an adapter out of a pickle is hashed again"),
    ),
    *plant(
        "jax_engine/lora/request.py",
        REQUEST,
        ("        if sum(given) != 1:\n", "        if sum(given) > 1:\n", "an adapter of nothing"),
        ('"lora_request: lora_int_id", self.lora_int_id, 1, MAX_ID',
         '"lora_request: lora_int_id", self.lora_int_id, 0, MAX_ID', "an id of 0"),
        ("    if len(lora_request) != num_prompts:\n", "    if len(lora_request) < num_prompts:\n",
         "more adapters than prompts"),
        ('    "is_3d_lora_weight": (False, "experts are not adapted"),\n', "",
         "experts' weights are asked for"),
    ),
    *plant(
        "jax_engine/lora/registry.py",
        REGISTRY,
        ("version is None or version.stamp != stamp", "version is None",
         "files that changed are not read again"),
        ("files = [place / FILE, place / WEIGHTS]", "files = [place / WEIGHTS]",
         "a configuration that changed is not noticed"),
        ("stamp if settled else None", "stamp", "files of one tick are one version"),
        ("            if _stamp(Path(place)) == stamp:\n", "            if True:\n",
         "files that change while they are read"),
        ("            self._kept.move_to_end(version.digest)\n", "",
         "the first that came goes first"),
        ("one = self._alive.setdefault(adapter.digest, adapter)", "one = adapter",
         "a version that is read again is another object"),
        ("if digest not in fixed]", "]", "what is pinned goes, too"),
        ("            check_fits(adapter, self.modules, self._max_lora_rank)\n",
         "            pass\n", "an adapter in memory may be another model's"),
        ("        self._versions = {at: one for at, one in self._versions.items() if one.digest != "
         "digest}\n", "", "a path of what is gone"),
        ("if digest is not None and digest not in self._named.values():",
         "if digest is not None:", "what another id means is removed"),
    ),
    *plant(
        "jax_engine/core/adapter_slots.py",
        SLOTS,
        ("        self._idle.pop(digest, None)\n", "", "a slot in use is taken"),
        ("        if not self._pins[digest]:\n", "        if True:\n",
         "the first of two groups that ends gives the slot up"),
        ("next(iter(self._idle))", "next(reversed(self._idle))", "the last that was left goes"),
        ("or bool(self._idle)", "", "a slot is never taken again"),
        ("adapter.digest in self._slots or ", "", "an adapter on the device waits for a slot"),
        ("        self._idle.clear()\n", "", "what was forgotten may be replaced"),
    ),
    *plant(
        "jax_engine/core/state.py",
        SLOTS,
        ("        return self.slots.has_room_for(group.adapter)\n", "        return True\n",
         "nobody waits for a slot"),
        ("        self._reserved = None\n        self._unpin(group)\n        mode",
         "        self._reserved = None\n        mode", "a preempted group keeps its slot"),
        ("            self._unpin(group)\n            self._requeue(group)\n",
         "            self._requeue(group)\n", "a group that is computed again has two pins"),
        ("        self._unpin(group)\n        del queue", "        del queue",
         "a slot is never given up"),
        ("        self.slots.clear()  # what failed may be what was to fill one\n", "",
         "slots of a runner that has forgotten them"),
    ),
    *plant(
        "jax_engine/core/make_step.py",
        SLOTS,
        ("history, 0, group.adapter_slot)", "history)", "rows without adapters"),
        ("len(drafts), group.adapter_slot\n", "len(drafts)\n", "guesses are verified by the base"),
        ("        plan.adapters,\n", "", "slots are never filled"),
    ),
    *plant(
        "jax_engine/core/sequence_group.py",
        SLOTS,
        ("cache_salt if adapter is None else (adapter.digest, cache_salt)", "cache_salt",
         "blocks of another adapter are hit"),
        ("else (adapter.digest, cache_salt)", "else adapter.digest",
         "users of one adapter share prefixes"),
    ),
    *plant(
        "jax_engine/core/admission.py",
        SLOTS,
        ("    if group.adapter is not None and not limits.max_loras:\n", "    if False:\n",
         "an adapter without slots hangs"),
    ),
    *plant(
        "jax_engine/engine/llm_engine.py",
        ENGINE,
        ("        if not self.config.enable_lora:\n            raise no_lora(name)\n", "",
         "adapters without enable_lora"),
        ("        if not self.worker.capabilities.max_loras:\n", "        if False:\n",
         "the device's slots are not asked for"),
    ),
    *plant(
        "jax_engine/engine/request_checks.py",
        FIELDS,
        ("            adapter=adapter,\n", "", "a request loses its adapter"),
    ),
    *plant(
        "jax_engine/engine/batch.py",
        ENGINE,
        ("            if id(one) not in made:\n", "            if True:\n",
         "arrays are hashed for each prompt"),
    ),
    *plant(
        "jax_engine/llm.py",
        FIELDS,
        ("            given = 2 * one_lora_each(given, len(left))\n",
         "            given = one_lora_each(given, 2 * len(left))\n",
         "a pair's adapter is one text's"),
        ("params.sampling_params(), use_tqdm=use_tqdm, lora_request=lora_request\n",
         "params.sampling_params(), use_tqdm=use_tqdm\n", "a search loses its adapter"),
    ),
    *plant(
        "jax_engine/serving/wire_params.py",
        ENGINE,
        ("os.path.abspath(lora.lora_path)", "lora.lora_path", "a path of another folder"),
    ),
    *plant(
        "reference/adapter_slots.py",
        ORACLE,
        ("(self._left_at[place], place)", "place", "the first place goes"),
        ("name is None or name not in in_use", "True", "a slot in use is taken"),
        ("        self._clock += 1\n", "", "nobody knows who left first"),
    ),
    *plant(
        "reference/scheduler_state.py",
        ("tests/reference/test_adapter_slots.py",),
        ("        self.slots.note_left(group.adapter)\n        group.adapter_slot = 0\n",
         "        self.slots.note_left(group.adapter)\n", "a victim keeps its slot"),
    ),
]  # fmt: skip
