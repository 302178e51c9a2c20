"""Planted faults: each takes one guard away, and the named test must notice. `test_mutants.py` runs them.

A number is that of an invariant of the design; a word is another guard that must not go unnoticed.
"""

from typing import NamedTuple

APPROVAL = "tests/fsm/test_decide_approval.py"
PEOPLE = "tests/fsm/test_decide_people.py"
RESULTS = "tests/fsm/test_decide_results.py"
STOP = "tests/fsm/test_decide_stop.py"
TURNS = "tests/fsm/test_decide_turns.py"
GRAPH = "tests/fsm/test_decide_graph.py"
GROUPS = "tests/fsm/test_groups.py"
RERANK = "tests/engine/test_rerank.py"
DEDUPE = "tests/fsm/test_dedupe.py"
PICKS = "tests/fsm/test_picks.py"
WEAK = "tests/engine/test_untooled.py"
CONTROL = "tests/fsm/test_turn_control.py"
DEADLINES = "tests/fsm/test_deadlines.py"
TOTAL = "tests/fsm/test_decide_total.py"
HISTORY = "tests/fsm/test_history.py"
SESSION = "tests/fsm/test_session.py"
TABLE = "tests/fsm/test_table.py"
SOURCES = "tests/engine/test_sources.py"
CONTEXT = "tests/engine/test_context.py"
WINDOWS = "tests/engine/test_windows.py"
WIRE = "tests/engine/models/test_validity.py"
TOOLS = "tests/engine/sources/test_sources.py"
LIVE = "tests/properties/test_live.py"
ORDER = "tests/properties/test_order_and_digest.py"
SIMULATION = "tests/properties/test_simulation.py"


class Mutant(NamedTuple):
    """In `file`, `old` (which is there once) becomes `new`: a test in `test` that fits `names` (`-k`) must fail."""

    guards: int | str
    file: str
    old: str
    new: str
    test: str
    names: str


MUTANTS = (
    # 1: the log is the only truth
    Mutant(1, "fsm/decide.py", "        session = evolve(session, following)\n",
           "        session = evolve(session, following)._replace(turn=session.turn + 1)\n", TOTAL, "whatever_comes"),
    Mutant(1, "store/reader.py", "AND e.seq = s.seq AND e.hash = s.hash", "AND e.seq = s.seq", LIVE, "only_a_cache"),
    Mutant(1, "fsm/session.py", "(*s.grants, Standing(e))", "s.grants", APPROVAL, "holds_for_later_calls"),
    Mutant(1, "store/verify.py", "    if claimed == folded:\n", "    if folded is not None:\n", LIVE, "says_more"),
    Mutant("unfit", "store/driver.py", "code in _UNFIT or isinstance(error, sqlite3.DataError | OverflowError)",
           "False", "tests/engine/test_storage.py", "never_fit"),
    Mutant("one engine", "store/sqlite.py", "call is not None and self._writer.after_batch is not None", "False",
           "tests/engine/test_idle.py", "second_one"),
    # 2: durable before anyone hears, and before the effect
    Mutant(2, "engine/hub.py", "        self._busy = True\n        batch.uses",
           "        self._busy = True\n        self.runner.reconcile(batch.effects)\n        batch.uses",
           LIVE, "invariant_02"),
    Mutant(2, "store/sqlite.py", '"synchronous", "FULL", 2', '"synchronous", "NORMAL", 1', LIVE, "reaches_the_disk"),
    Mutant(2, "fsm/decide.py", 'if call.status == "started" and call.epoch == session.epoch',
           'if call.status in ("started", "approved")', APPROVAL, "runs_after_its_decision"),
    # 3: contiguous seq, one writer
    Mutant(3, "store/append.py", "if newest is None or newest[0] != epoch:", "if newest is None:",
           ORDER, "newest_owner"),
    Mutant(3, "store/append.py", "if tip.seq != expected_seq:", "if tip.seq < expected_seq:",
           ORDER, "many_appends_at_one"),
    Mutant(3, "fsm/session.py", "        if row.seq != session.seq + 1:\n", "        if row.seq <= session.seq:\n",
           SESSION, "missing_row"),
    # 4: history is valid
    Mutant(4, "fsm/history.py", "    if isinstance(last, UserMessage) and isinstance(more, UserMessage):\n",
           "    if isinstance(last, UserMessage) and not last.text:\n", HISTORY, "word_that_interrupts"),
    Mutant(4, "fsm/history.py", "if exchange.speaker == speaker and exchange.complete else []",
           "if exchange.speaker == speaker and exchange.results else []", HISTORY, "whatever_happens"),
    Mutant(4, "fsm/history.py", "call.arguments if call.parsed else", "call.arguments if call.arguments else",
           HISTORY, "as_an_object"),
    Mutant(4, "fsm/people.py", "    for call in s.open_calls:\n", "    for call in s.open_calls[1:]:\n",
           STOP, "nothing_open"),
    # 5: no second start without a word
    Mutant(5, "fsm/session.py", 'call._replace(status="unknown")', 'call._replace(status="approved")',
           RESULTS, "never_run_again"),
    Mutant(5, "fsm/results.py", "        if again and not facts.idempotent:\n", "        if again and facts.gated:\n",
           SIMULATION, "TestSimulation"),
    Mutant(5, "fsm/results.py", "idempotent=call.idempotent and facts.idempotent", "idempotent=facts.idempotent",
           RESULTS, "idempotent_only_later"),
    Mutant(5, "fsm/follow.py", 'if call.status == "unknown" and not call.idempotent:',
           'if call.status == "unknown" and not call.idempotent and not call.attempt:', RESULTS, "cut_off_by_a_crash"),
    Mutant(5, "fsm/results.py", '"outcome_unknown" if call.attempt else "gated"', '"gated"', RESULTS, "became_gated"),
    # 6: only approved arguments run
    Mutant(6, "engine/runner.py", "if stored is None or text_digest(text) != effect.digest:", "if stored is None:",
           ORDER, "allowed_it_and_checked"),
    Mutant(6, "engine/runner.py", "            stored = event.arguments\n", "            stored = effect.arguments\n",
           ORDER, "allowed_it_and_checked"),
    Mutant(6, "fsm/people.py", "    if i.digest != request.digest:\n", '    if i.digest not in (request.digest, ""):\n',
           APPROVAL, "other_arguments_than_those_shown"),
    Mutant(6, "fsm/people.py", '"digest": request.digest if arguments is None else digest(arguments)',
           '"digest": request.digest', APPROVAL, "edited_call_runs"),
    Mutant(6, "fsm/people.py", '"match": resolved.digest if i.exact', '"match": request.digest if i.exact',
           APPROVAL, "exact_grant_with_an_edit"),
    Mutant(6, "fsm/people.py", "    if i.edited is not None and i.edited.problem:\n",
           "    if i.edited is not None and i.edited.problem == i.reason:\n", APPROVAL, "bad_edit"),
    # 7: who decides
    Mutant(7, "fsm/approval.py", 'return actor.startswith("person:") and len(actor) > len("person:")',
           'return actor.startswith("person:") or actor.startswith("agent:")', APPROVAL, "nobody_but_a_person"),
    Mutant(7, "fsm/results.py", 'outcome="expired",\n                via="timer"',
           'outcome="approved",\n                via="timer"',
           APPROVAL, "denied_by_the_timer"),
    Mutant(7, "fsm/approval.py", "            grant.subject == subject\n            and ", "            ",
           APPROVAL, "grant_of_the_owner"),
    Mutant(7, "fsm/approval.py", 'and grant.match in ("", digest)', "and grant.match is not None",
           APPROVAL, "exact_grant"),
    Mutant(7, "fsm/session.py", "tuple(one for one in s.grants if one.grant.grant_id != e.grant_id)", "s.grants",
           APPROVAL, "holds_for_later_calls"),
    Mutant(7, "fsm/people.py", "    if i.remember and (unknown or", "    if i.remember and False and (unknown or",
           APPROVAL, "only_an_approval_can_be"),
    Mutant(7, "fsm/decide.py", "isinstance(given, _WORDS) else []", "isinstance(given, inp.Answer) else []",
           DEADLINES, "no_timer_has_fired"),
    Mutant(7, "fsm/decide.py", "(*late, given)", "(*late[:1], given)", DEADLINES, "never_covers"),
    Mutant(7, "fsm/people.py", "    if i.grants is not None and i.grant_id not in known:\n",
           "    if i.grants is not None and not known:\n", "tests/fsm/test_revoke.py", "does_not_hold"),
    Mutant(7, "engine/grants.py", "self._revoked.add((event.grant_id, event.subject))",
           "self._revoked |= {(event.grant_id, one.subject) for one in self._grants.values()}",
           "tests/engine/test_grant_book.py", "another_person"),
    Mutant(7, "server/commands.py", '(frame.type, "grant") if', "(frame.type,) if",
           "tests/server/test_roles.py", "grant_of_a_decision"),
    # 8: losing words are rows
    Mutant(8, "fsm/decide.py", "    if isinstance(given, _UNRECORDED) or not session.started:\n",
           "    if isinstance(given, (*_UNRECORDED, inp.Decide)) or not session.started:\n",
           ORDER, "each_loser_is_a_row"),
    Mutant(8, "fsm/decide.py", "    if isinstance(given, _UNRECORDED) or not session.started:\n",
           '    if refusal.code != "invalid" or not session.started:\n', SIMULATION, "TestSimulation"),
    Mutant(8, "fsm/people.py", '    if past is not None:\n        return inp.Refusal("expired" if',
           '    if past is not None and not past.actor:\n        return inp.Refusal("expired" if',
           APPROVAL, "who_was_first"),
    # 9: a refusal changes nothing, nothing is lost
    Mutant(9, "fsm/decide.py", "(session.state,), evolve(session, event), refusal)",
           "(session.state,), evolve(session, event)._replace(queue=()), refusal)", TOTAL, "whatever_comes"),
    Mutant(9, "fsm/session.py", "tuple(one for one in s.queue if one.message_id != e.message_id)", "()",
           PEOPLE, "get_their_turns"),
    Mutant(9, "fsm/people.py", "    if not word and not i.attachments:\n",
           "    if not i.text and not i.attachments:\n",
           PEOPLE, "blank_message"),
    Mutant(9, "fsm/follow.py", "said(session.queue[0], session.limits, now) if session.due else None", "None",
           GRAPH, "when_one_has_finished"),
    Mutant(9, "fsm/follow.py", "for queued in session.queue]", "for queued in session.queue[1:]]",
           "tests/fsm/test_dropped.py", "names_the_messages"),
    # 10: replay
    Mutant(10, "fsm/session.py", "if to is not None and row.seq > to:", "if to is not None and row.seq >= to:",
           SESSION, "to_any_seq"),
    Mutant(10, "fsm/session.py", "NEXT.get((session.state, kind))", "NEXT.get((session.state, kind), session.state)",
           SESSION, "does_not_allow"),
    # guards that are no invariant of their own
    Mutant("table", "fsm/table.py", "                if (start, kind) in table:\n",
           "                if table.get((start, kind)) is end:\n",
           TABLE, "duplicate"),
    Mutant("table", "fsm/table.py", "    if missing := set(State) - reached:\n",
           "    if (missing := set(State) - reached) and len(missing) > 4:\n", TABLE, "nothing_leads_to"),
    Mutant("table", "fsm/table.py", '(SUCCESS, "turn_failed", ERROR)',
           '(SUCCESS, "turn_failed", ERROR), (INTERRUPT, "turn_failed", ERROR)',
           TABLE, "walk_every_row"),
    Mutant("cap", "fsm/results.py", "LIMIT if place >= room else", "LIMIT if place > room else",
           RESULTS, "exactly_as_many"),
    Mutant("cap", "fsm/follow.py", 'return over(session, "limit") if session.over_cap or session.spent else None',
           "return None",
           RESULTS, "no_oftener_than_the_cap"),
    Mutant("rounds", "fsm/follow.py", "        if session.rounds.get(counter, 0) >= limit:\n",
           "        if session.rounds.get(counter, 0) > limit:\n", GRAPH, "upstream_4"),
    Mutant("rounds", "fsm/session.py", 'f"{len(first)}:{first}|{second}"', 'f"{first}|{second}"',
           "tests/fsm/test_counters.py", "bar_in_its_names"),
    Mutant("control", "fsm/results.py", r'r"\s*(TERMINATE|INTERRUPT)\s*"', r'r"(TERMINATE|INTERRUPT)"',
           GRAPH, "trimmed"),
    Mutant("speaker", "fsm/director.py", " and name != last", "", GRAPH, "never_the_last_one"),
    Mutant("speaker", "fsm/director.py", "        and (channel, name) not in session.left\n", "", GROUPS, "removed"),
    Mutant("speaker", "fsm/director.py", "(*allowed, *(name for name in known if name not in allowed))", "allowed",
           GROUPS, "may_not_speak"),
    Mutant("speaker", "fsm/choices.py", '"listener": "", "step": s.step + 1}', '"listener": ""}',
           GROUPS, "removed_while"),
    Mutant("rerank", "engine/offer.py", "    choice = session.choice\n", "    choice = None\n", RERANK, "comes_back"),
    Mutant("rerank", "engine/tools/rerank.py", " or tool.name in used", "", RERANK, "called_before"),
    Mutant("rerank", "engine/tools/rerank.py", "(_likeness(tool, one) * FADING**age for age, one in enumerate(asked))",
           "(_likeness(tool, one) for one in asked[:1])", RERANK, "follow_up"),
    Mutant("rerank", "fsm/session.py", ' if s.runs else (), "choice": None,', " if s.runs else (),",
           RERANK, "members_of"),
    Mutant("usage", "fsm/choices.py", '{**changes, "usage": s.usage.plus(e.usage)}', "changes",
           GROUPS, "tokens_of_a_director"),
    Mutant("granted", "fsm/results.py", "if call.facts is None or call.tool not in granted:", "if call.facts is None:",
           RESULTS, "not_granted"),
    Mutant("arguments", "fsm/results.py", "    if call.problem or call.parsed is None:\n",
           "    if call.parsed is None:\n",
           RESULTS, "do_not_fit"),
    Mutant("stale", "fsm/results.py", " and not s.open_calls and key == word_key(s)", " and not s.open_calls",
           TURNS, "before_a_stop"),
    Mutant("stale", "fsm/session.py", '"deadline": e.deadline, "step": s.step + 1, "usage": NO_USAGE}',
           '"deadline": e.deadline}',
           TURNS, "before_a_stop"),
    Mutant("stale", "fsm/results.py", '    if i.key != f"tool:{call.id}:{call.attempt}":\n', "    if not i.key:\n",
           RESULTS, "lost_process"),
    Mutant("round", "fsm/decide.py", "    if session.state is State.SUCCESS:\n        effects +=",
           "    if session.state in (State.SUCCESS, State.AWAITING_APPROVAL):\n        effects +=",
           APPROVAL, "before_every_call"),
    Mutant("round", "fsm/results.py", "    return asked or started or", "    return [*started, *asked] or",
           RESULTS, "asked_about_first"),
    Mutant("synthetic", "fsm/results.py", '"synthetic": s.synthetic, "citations"', '"synthetic": False, "citations"',
           TURNS, "marks_its_words"),
    Mutant("error", "fsm/results.py", "    if not i.text.strip() and not s.calls:\n",
           "    if not i.text and not s.calls:\n",
           RESULTS, "empty_completion"),
    Mutant("repeats", "fsm/session.py", 'call is None or e.outcome != "ok"', "call is None", DEDUPE, "refused_may_be"),
    Mutant("repeats", "fsm/dedupe.py", "now <= run.at + pause * 1000", "now < run.at + pause * 1000", DEDUPE, "pause"),
    Mutant("repeats", "fsm/dedupe.py", "runs if run.unique or run.cooldown}", "runs if run.cooldown}",
           DEDUPE, "uniques_kept"),
    Mutant("repeats", "fsm/dedupe.py", "return known if known and same is arguments else", "return known if known else",
           DEDUPE, "key_order"),
    Mutant("stop", "fsm/people.py", "word = i.text.strip().casefold()", "word = i.text.strip()", CONTROL, "exit_word"),
    Mutant("limit", "fsm/decide.py", "    if session.deadline is not None and (", "    if session.deadline and not (",
           CONTROL, "time_is_over"),
    Mutant("limit", "fsm/follow.py", "session.over_cap or session.spent", "session.over_cap", CONTROL, "tokens"),
    Mutant("weak", "fsm/picks.py", "    if rest or not calls:\n", "    if not calls:\n", PICKS, "stands_in_prose"),
    Mutant("weak", "fsm/picks.py", "    if cut:\n        return Unfit(CUT)\n", "", PICKS, "cut_at_a_limit"),
    Mutant("weak", "fsm/picks.py", "    if len(values) > 1:\n", "    if len(values) > 2:\n", PICKS, "ambiguous"),
    Mutant("weak", "fsm/picks.py", "    if len(found) != len(pairs):\n", "    if not found:\n", PICKS, "ambiguous"),
    Mutant("weak", "fsm/picks.py", " if problem else Pick(name, text)", " if not text else Pick(name, text)",
           PICKS, "well_formed_and_fitting"),
    Mutant("weak", "fsm/picks.py", 'self._mode = "held"', 'self._mode = "prose"', PICKS, "may_become_a_call"),
    Mutant("weak", "engine/models/untooled.py", "if len(tries.failed) < self.retries:",
           "if len(tries.failed) <= self.retries:", WEAK, "end_at_the_cap"),
    Mutant("weak", "engine/models/untooled.py", "call.tools, offer, failed)",
           "call.tools, offer)", WEAK, "the_reason_in_the_prompt"),
    Mutant("sources", "server/room.py", "_RESULT if isinstance(event, ToolReturned) else _ENVELOPE", "_ENVELOPE",
           "tests/server/test_sources.py", "come_once"),
    Mutant("sources", "fsm/follow.py", "session.state is State.ERROR or not", "not", SOURCES, "says_it_once"),
    Mutant("sources", "fsm/people.py", "citations=cut(has.citations)", "citations=()", SOURCES, "before_the_end"),
    Mutant("sources", "fsm/results.py", '"usage": i.usage, **brought(s),', '"usage": i.usage,', SOURCES, "and_so_has"),
    Mutant("context", "fsm/session.py", '"attachments": (), "fetched": _NONE,', '"attachments": (),',
           "tests/fsm/test_context.py", "no_turn_sees"),
    Mutant("context", "fsm/results.py", " or i.speaker in s.fetched:", ":", "tests/fsm/test_context.py", "comes_twice"),
    Mutant("context", "engine/runner.py", "agent.fetches and effect.speaker not in hub.session.fetched",
           "agent.fetches", CONTEXT, "once_a_turn"),
    Mutant("context", "engine/prompt.py", "    if fetched is None:\n", "    if True:\n", CONTEXT, "recorded_for"),
    Mutant("window", "engine/window.py", "            self._asked = unit, self.messages[0], self._left\n", "", WINDOWS,
           "question_stays"),
    Mutant("window", "engine/window.py", "self._left > 0 and (self", "self._left > 0 or (self", WINDOWS,
           "after_a_restart"),
    Mutant("window", "engine/context.py", "in (event.request.asked, event.request.history)",
           "in (event.request.history,)", WINDOWS, "question_stays"),
    Mutant(4, "engine/models/pydantic_ai_messages.py", 'item["kind"] != "thinking" or item.get("signature")', "True",
           WIRE, "every_log"),
    Mutant(4, "engine/models/pydantic_ai_messages.py", 'if not tools and provider == "anthropic":', "if False:",
           WIRE, "no_tool_is_offered"),
    Mutant(4, "engine/models/pydantic_ai_messages.py", "file.media_type not in _PICTURES or", "",
           WIRE, "no_provider_takes"),
    Mutant("fork", "fsm/fork.py", ', "asked": _places(seqs, request.asked)', "",
           "tests/engine/test_forks.py", "rebuild_every_request"),
    Mutant("fork", "fsm/fork.py", 'if call.status != "question":', "if False:",
           "tests/engine/test_forks.py", "asks_again_and_pays"),
    Mutant("tools", "engine/missing.py", "            if tool is not None:\n", "            if True:\n",
           TOOLS, "waits_for_its_source"),
    Mutant("tools", "engine/tools/registry.py", "        if other is not None:\n",
           "        if False:\n", TOOLS, "collide"),
    Mutant("tools", "engine/tools/plugin.py", "needs_approval=not fits(self.free, one.name)", "needs_approval=False",
           TOOLS, "called_by_its_id"),
    Mutant("tools", "engine/tools/flow.py", "any(tool.needs_approval for tool in tools.values())", "False",
           "tests/engine/sources/test_flows.py", "needs_a_word"),
    Mutant("direct", "fsm/results.py", "direct=len(i.calls) == 1 and call", "direct=call",
           "tests/engine/test_direct.py", "beside_other_calls"),
    Mutant("direct", "fsm/results.py", 's.usage, "direct": result.call_id, **brought(s, [result]),',
           's.usage, "direct": result.call_id,', "tests/engine/test_direct.py", "all_sources"),
    Mutant("direct", "fsm/session.py", '{"step": s.step + 1} if e.direct else _completion(s, e.sender)',
           "_completion(s, e.sender)", "tests/engine/test_direct.py", "with_all_sources"),
)  # fmt: skip
