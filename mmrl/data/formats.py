"""Formats of public data sets: adapters that map their rows to the columns of prompts and rewards.

An adapter takes a row of the data set and returns one with `prompt` (or `messages`) and what the
rewards read: `answer` (math, answer); `choices` (answer); `tests`, `setup`, `entry_point` (code);
`numbers`, `target` (countdown); `puzzle`, `solution` (sudoku). Images are in `image` or `images`.
It raises a KeyError for a missing column and a ValueError, with the reason, for a row that it
cannot read. A new format is one such function and one line in `FORMATS`. Questions about images:
`mmrl.data.questions`. Problems with programs as tests: `mmrl.data.livecodebench`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError
from mmrl.data import questions
from mmrl.data.livecodebench import livecodebench
from mmrl.data.questions import Row, drop_empty, omit
from mmrl.rewards.countdown import read_whole_number, read_whole_numbers
from mmrl.rewards.parsing.extraction import find_boxed, find_hashed, find_tagged


def rows(row: Row) -> Row:
    """Rows with these column names already, such as those of GenEval."""
    return row


def gsm8k(row: Row) -> Row:
    """GSM8K (arXiv 2110.14168): the reference is what follows `####` in `answer`."""
    answer = find_hashed(str(row["answer"]))
    if not answer:
        raise ValueError("answer has nothing after '####'")
    return {"prompt": row["question"], "answer": answer}


def math(row: Row) -> Row:
    """MATH (arXiv 2103.03874) and MATH-500: `answer` if there is one, else the solution's box."""
    given = row.get("answer")
    answer = find_boxed(str(row["solution"])) if given in (None, "") else given
    if answer in (None, ""):
        raise ValueError("there is no answer, and no box in solution")
    return {
        **omit(row, "problem", "solution", "unique_id"),
        **drop_empty(id=row.get("unique_id")),
        "prompt": row["problem"],
        "answer": answer,
    }


def numina_lean(row: Row) -> Row:
    """NuminaMath-LEAN: the problem in words and its answer, without the proof in Lean 4."""
    if row.get("answer") in (None, "", "proof", "NaN"):
        raise ValueError("there is no answer; leave proofs out by data.where on question_type")
    kept = {key: row[key] for key in ("question_type", "problem_type", "source") if key in row}
    return {
        **drop_empty(id=row.get("uuid")),
        "prompt": row["problem"],
        "answer": row["answer"],
    } | kept


def r1_v(row: Row) -> Row:
    """R1-V's rows about an image, such as leonardPKU/clevr_cogen_a_train: the reference is what
    `solution` has in its answer tag."""
    answer = find_tagged(str(row["solution"]))
    if not answer:
        raise ValueError("solution has no filled <answer>")
    return {**omit(row, "problem", "solution"), "prompt": row["problem"], "answer": answer}


def mbpp(row: Row) -> Row:
    """MBPP (arXiv 2108.07732), full (`text`) and sanitized (`prompt`, `test_imports`)."""
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or [])
    return {
        "id": f"mbpp-{row['task_id']}",
        "prompt": row["text"] if "text" in row else row["prompt"],
        "tests": row["test_list"],
        **drop_empty(setup=setup),
    }


def humaneval(row: Row) -> Row:
    """HumanEval (arXiv 2107.03374); the text before the function is set-up for the solution. The
    `hint` is that of dLLM-RL's rows."""
    setup, found, _ = str(row["prompt"]).rpartition(f"def {row['entry_point']}(")
    if not found:
        raise ValueError(f"prompt does not define {row['entry_point']!r}")
    return {
        "id": row["task_id"],
        "prompt": row["prompt"],
        "tests": [row["test"]],
        "entry_point": row["entry_point"],
        "hint": _ONE_BLOCK,
        **drop_empty(setup=setup.strip()),
    }


def dllm_rl(row: Row) -> Row:
    """dLLM-RL's math, code and vision rows. `test_time_limit` is kept but has no effect here. The
    `hint` of code asks for the form of the program, as dLLM-RL's prompts do. A `prefix` that opens
    a code block is what completions begin with, another one is set-up."""
    rest = omit(row, "question", "ground_truth_answer", *_DLLM_TESTS, "test_method", "prefix")
    if "test_method" not in row:
        return {**rest, "prompt": row["question"], "answer": row["ground_truth_answer"]}
    if row["test_method"] not in ("function", "stdio"):
        raise ValueError(f"test_method is {row['test_method']!r}; allowed: function, stdio")
    called, prefix = row["test_method"] == "function", row.get("prefix") or ""
    return {
        "hint": _ONE_BLOCK if called else _READ_AND_PRINT,
        **rest,
        "prompt": row["question"],
        "tests": row["test_list"] if called else _pairs(row),
        **({"assistant_prefill": prefix} if "```" in prefix else drop_empty(setup=prefix)),
    }


_ONE_BLOCK = (
    "Place your code within a single Python code block ```python ```. Do not include more than one"
    " code block."
)
_READ_AND_PRINT = (
    "You should put your code in ```python ```. Use input() to read input and print() to produce"
    " output in your script."
)
_DLLM_TESTS = ("test_list", "test_input", "test_output")


def _pairs(row: Row) -> list[Row]:
    given, wanted = row["test_input"], row["test_output"]
    if len(given) != len(wanted):
        raise ValueError(f"{len(given)} test_input and {len(wanted)} test_output; give as many")
    return [{"input": i, "output": o} for i, o in zip(given, wanted, strict=True)]


def dllm_rl_sft(row: Row) -> Row:
    """dLLM-RL's supervised rows, with or without an image: `completion`, and `order` where the
    steps were recorded. A templated prompt is split into its messages and the end tokens of a
    response are removed, because the layout adds both."""
    names = ("image", "image_path", "image_abs_path")
    image = next((row[name] for name in names if row.get(name)), None)
    turns = [{"role": role, "content": text} for role, text in _TURN.findall(str(row["prompt"]))]
    return {
        **omit(row, "prompt", "response", "step_map", *names),
        **({"messages": turns} if turns else {"prompt": row["prompt"]}),
        "completion": _ENDS.sub("", row["response"]),
        **drop_empty(order=row.get("step_map"), image=image),
    }


def rollouts(row: Row) -> Row:
    """Rollouts that a run kept in `samples/completions_*.parquet`, of prompts that are one text:
    `completion`, the tokens as they were written, and `order`, the step of each."""
    if not row["prompt"]:
        raise ValueError("its prompt has messages, of which a kept rollout does not hold all")
    kept = omit(row, "completion", "tokens", "trace")
    return {**kept, "completion": row["tokens"], "order": row["trace"]}


def s1k(row: Row) -> Row:
    """simplescaling/s1K as d1 trains on it (arXiv 2504.12216): the first reasoning trace and the
    attempt in tags, after a question that asks for them."""
    thoughts, answer = row["thinking_trajectories"], row["attempt"]
    if not isinstance(thoughts, list) or not thoughts:
        raise ValueError("thinking_trajectories is no list of texts")
    return {
        "prompt": f"{_TAGS}\n\n\n{row['question']}",
        "completion": f"<reasoning>{thoughts[0]}</reasoning>\n<answer>{answer}</answer>",
    }


_TAGS = """Respond in the following format:
<reasoning>
Your reasoning here
</reasoning>
<answer>
...
</answer>"""

_TURN = re.compile(  # of LLaDA's template, and of qwen2's
    r"<\|(?:start_header_id|im_start)\|>(\w+)(?:<\|end_header_id\|>|\n)"
    r"\s*(.*?)\s*<\|(?:eot_id|im_end)\|>",
    re.DOTALL,
)
_ENDS = re.compile(r"(?:<\|eot_id\|>|<\|im_end\|>|<\|endoftext\|>|\s)+\Z")


def countdown(row: Row) -> Row:
    """Countdown-Tasks-3to4, as d1 trains on it: `nums`, `target`."""
    numbers = read_whole_numbers(row["nums"], "nums")
    target = read_whole_number(row["target"], "target")
    return {"prompt": f"Numbers: {numbers}\nTarget: {target}", "numbers": numbers, "target": target}


def d1_countdown(row: Row) -> Row:
    """d1's Countdown test file: `input` such as "30,100,93", `output` such as "23"."""
    return countdown({"nums": row["input"].split(","), "target": row["output"]})


def d1_sudoku(row: Row) -> Row:
    """d1's Sudoku CSV: `Puzzle`, `Solution`, 0 where a cell is empty."""
    puzzle, solution = str(row["Puzzle"]), str(row["Solution"])
    if len(puzzle) != len(solution) or not (puzzle + solution).isdecimal():
        raise ValueError(f"Puzzle {puzzle!r} and Solution {solution!r} are not as many digits")
    prompt = f"Solve the following Sudoku puzzle: {puzzle}"
    return {"prompt": prompt, "puzzle": puzzle, "solution": solution}


def dpg_bench(row: Row) -> Row:
    """DPG-Bench (arXiv 2403.05135), a prompt of `group_questions`: what `dpg_bench.csv` asks about
    it becomes the metadata `questions` of the reward `dsg`."""
    prompt = {"id": str(row["item_id"]), "prompt": row["text"]}
    questions = [
        {
            "number": int(each["proposition_id"]),
            "question": each["question_natural_language"],
            "parents": [int(n) for n in str(each["dependency"]).split(",") if int(n) != 0],
            "category": f"{each['category_broad'].strip()} - {each['category_detailed'].strip()}",
        }
        for each in row["rows"]
    ]
    return {**prompt, "questions": questions}


def geneval2(row: Row) -> Row:
    """GenEval 2 (arXiv 2512.16853): `vqa_list` becomes `questions` of the reward `dsg`, where yes
    is always right, in the categories `skills`. The tag is the number of atoms."""
    asked = zip(row["vqa_list"], row["skills"], strict=True)
    questions = [
        {"number": n, "question": _ask_for_yes(*pair), "category": skill}
        for n, (pair, skill) in enumerate(asked, start=1)
    ]
    return {"prompt": row["prompt"], "tag": f"{row['atom_count']} atoms", "questions": questions}


def _ask_for_yes(question: str, answer: str) -> str:
    return question if answer.lower() == "yes" else f"{question} Is the answer: {answer}?"


def hps(row: Row) -> Row:
    """The prompts of HPSv2 (arXiv 2306.09341) and HPSv3 (2508.03789), as `tag_by_file` has them:
    the tag is the style, or the category."""
    text = row["prompt"] if "prompt" in row else row["caption"]
    return {"prompt": text, "tag": row["tag"]}


def unirl(row: Row) -> Row:
    """Prompts as UniRL's launchers read them. `media` or `media_refs` list the images of a prompt,
    `{modality, role, uri}` each, where a uri is a path relative to the file. The keys of a mapping
    under `metadata` become columns."""
    computed = sorted(key for key in row if "embed" in key)
    if computed:
        raise ValueError(
            f"{computed[0]!r} holds embeddings that were computed before, which are not read; leave"
            " the column out, texts are encoded once here (model.encodings_dir keeps them)"
        )
    folded = row.get("metadata") or {}
    if not isinstance(folded, Mapping):
        raise ValueError(f"metadata is {type(folded).__name__}, not a mapping of columns")
    texts, media = ("prompt", "caption"), ("media", "media_refs")
    text = next((row[key] for key in texts if row.get(key)), None)
    if text is None:
        raise KeyError("prompt")
    images = [_read_medium(each) for key in media for each in row.get(key) or ()]
    return {
        **folded,
        **omit(row, *texts, *media, "prompt_id", "metadata"),
        **drop_empty(id=row.get("prompt_id"), images=images),
        "prompt": text,
    }


def _read_medium(medium: Any) -> str:
    """The path of an image that a prompt gives."""
    if not isinstance(medium, Mapping) or not isinstance(medium.get("uri"), str):
        raise ValueError(f"{medium!r} is no medium, that is {{modality, role, uri}}")
    modality, role, uri = medium.get("modality", "image"), medium.get("role"), medium["uri"]
    if modality != "image":
        raise ValueError(f"its medium {uri!r} is {modality}; prompts give images")
    if role not in (None, *_ROLES):
        names = ", ".join(_ROLES)
        raise ValueError(f"the role of {uri!r} is {role!r}; those of images of prompts: {names}")
    return uri.removeprefix("file://")


_ROLES = ("input", "condition", "source", "reference", "first_frame")
"""Roles of images that a prompt gives, of which a task says what they are for."""

FORMATS: dict[str, Callable[[Row], Row]] = {
    "rows": rows,
    "gsm8k": gsm8k,
    "math": math,
    "numina_lean": numina_lean,
    "r1_v": r1_v,
    "mbpp": mbpp,
    "humaneval": humaneval,
    "livecodebench": livecodebench,
    "dllm_rl": dllm_rl,
    "dllm_rl_sft": dllm_rl_sft,
    "rollouts": rollouts,
    "s1k": s1k,
    "dpg_bench": dpg_bench,
    "geneval2": geneval2,
    "hps": hps,
    "seed_bench": questions.seed_bench,
    "mmmu": questions.mmmu,
    "mathvista": questions.mathvista,
    "unirl": unirl,
    "countdown": countdown,
    "d1_countdown": d1_countdown,
    "d1_sudoku": d1_sudoku,
}


def group_questions(rows: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Row]]:
    """DPG-Bench's rows per prompt, in the order of the file, each with the place of its first
    question; without `item_id` and `text` rows stay as they are, and the format refuses them."""
    prompts: dict[Any, tuple[str, Row]] = {}
    for place, row in rows:
        if not isinstance(row, dict) or not {"item_id", "text"} <= row.keys():
            yield place, row
            continue
        first = {"item_id": row["item_id"], "text": row["text"], "rows": []}
        _, prompt = prompts.setdefault(row["item_id"], (place, first))
        if prompt["text"] != row["text"]:
            reason = f"item_id {row['item_id']!r} has another text than in its first row"
            raise ConfigError(f"{place}: {reason}.")
        prompt["rows"].append(row)
    yield from prompts.values()


def tag_by_file(rows: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Row]]:
    """Texts, or rows, with the name of their file as `tag`: `anime.json` and
    `benchmark_Characters.json` have the tags `anime` and `Characters`."""
    for place, row in rows:
        file, _, _ = place.rpartition(", ")
        tag = Path(file).stem.removeprefix("benchmark_")
        yield place, {**(row if isinstance(row, dict) else {"prompt": row}), "tag": tag}


GROUPED = {"dpg_bench": group_questions, "hps": tag_by_file}
"""Formats that read the rows of their files together, or by place: what makes a row of a prompt."""


def adapt_row(row: Any, name: str, place: str, key: str, advice: str) -> Row:
    """Map a row of a data set of the format `name` to the columns of prompts and rewards; for
    messages are its place, the dotted `key` of the format, and the advice about a missing column.
    Raises ConfigError: it is no mapping of columns, or does not fit the format."""
    if not isinstance(row, dict):
        raise ConfigError(f"{place} is not a mapping of columns but {type(row).__name__}.")
    try:
        return FORMATS[name](row)
    except KeyError as error:
        has = f"which {key} {name} reads; it has {sorted(row)}. {advice}"
        raise ConfigError(f"{place} has no {error.args[0]!r}, {has}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{place}: {error}.") from error
