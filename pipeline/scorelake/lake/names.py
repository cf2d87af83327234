"""Names of columns and verdicts in other tools, and what they mean."""

from __future__ import annotations

import re

from scorelake.text import bare


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


PASSES = _set("c correct pass passed true yes y success successful resolved solved accepted ok right 1 win")
FAILS = _set("i incorrect fail failed false no n failure unsuccessful unresolved unsolved rejected wrong 0 loss")
"""Verdicts in most tools, in any case."""
EITHER = _set("yes no y n true false 1 0")
"""Verdicts that a negative name inverts: `failed = yes`, but not `failed = pass`."""
MODELS = re.compile(
    r"gpt|claude|llama|qwen|gemini|gemma|mistral|mixtral|deepseek|phi-|grok|command-r|olmo|granite|falcon",
    re.IGNORECASE,
)
SETTINGS = _set("""
    temperature temp topp topk minp maxtokens maxnewtokens maxgentoks frequencypenalty presencepenalty
    repetitionpenalty dosample decoding sampling samplingstrategy reasoning reasoningeffort effort thinking
    thinkingbudget cot numfewshot nfewshot fewshot numshots nshot nshots shots shot prompt promptversion
    prompttemplate promptname promptstyle promptformat systemprompt systemmessage template chattemplate tools toolset
    toolchoice taskversion grader gradermodel judge judgemodel scorer scorername filter filtername reducer
    epochsreducer
""")
"""Usual names of settings that change what is measured: different values must not be pooled."""
PROVENANCE = _set("""
    commit git host hostname node machine package packages pip timestamp time date created started finished updated
    completed concurrency connections workers batch port pid user gpu device path file latency duration
""")
"""Words in names of columns that change nothing of what is measured."""
VARIANTS = _set("checkpoint ckpt step steps iteration iter revision rev snapshot version adapter lora quantization")
"""Words in names of columns that tell variants of a model apart."""
POINTS = _set("checkpoint ckpt step iteration iter")
"""Those of them that are points of one training run; not `steps`, which agents take."""
SETS = _set("task dataset split config subset suite category domain topic section part exam language lang year")
"""Words in names of columns whose values are sets of problems."""
_FAILURES = _set("fail fails failed failure error errored wrong incorrect loss lost unsolved unresolved unsuccessful")
_SUCCESSES = _set("pass passed correct solved resolved success successful accepted right ok")
_NEGATIONS = _set("no not non without free")


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: isWrong and is_wrong -> is, wrong."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]


def means_failure(name: str) -> bool:
    """Return whether a verdict of this name is true for a failure: is_wrong, not_solved; but not no_error."""
    words = set(words_of(name))
    named = _SUCCESSES if words & _NEGATIONS else _FAILURES
    return bool(words & named)


def names_setting(name: str) -> bool:
    """Return whether a column of this name changes what is measured, also as a part: sampling.top_p."""
    return bare(name) in SETTINGS or bare(name).endswith(("temperature", "topp", "fewshot"))
