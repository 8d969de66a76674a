"""Rows of public data sets, as they stand there, become prompts that the rewards can score."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.rewards import build_reward
from mmrl.types import Prompt, Sample

GSM8K = {
    "question": "Weng earns $12 an hour for babysitting. Yesterday, she just did 50 minutes of"
    " babysitting. How much did she earn?",
    "answer": "Weng earns 12/60 = $<<12/60=0.2>>0.2 per minute.\nWorking 50 minutes, she earned"
    " 0.2 x 50 = $<<0.2*50=10>>10.\n#### 10",
}
MATH = {"problem": "What is the greatest common factor of $32$ and $48$?", "level": "Level 2"}
MATH |= {"type": "Number Theory"}
MATH |= {"solution": "Both are multiples of 16, so the answer is $\\boxed{16}$."}
NUMINA = {
    "uuid": "8fd60c95-01e0-4d0c-b9d8-a4bdd8ea7a83",
    "problem": "How many even primes are there?",
    "question_type": "math-word-problem",
    "answer": "1",
    "author": "human",
    "formal_statement": "theorem x : {p | p.Prime ∧ Even p}.ncard = 1 := by sorry",
    "formal_proof": None,
}
MBPP = {"task_id": 17, "text": "Write a function to find the perimeter of a square."}
MBPP |= {"code": "def square_perimeter(a):\r\n  perimeter=4*a\r\n  return perimeter"}
MBPP |= {"test_list": ["assert square_perimeter(10)==40", "assert square_perimeter(5)==20"]}
MBPP |= {"test_setup_code": "", "challenge_test_list": []}
SANITIZED = {
    "source_file": "Benchmark Questions Verification V2.ipynb",
    "task_id": 82,
    "prompt": "Write a function to find the volume of a sphere.",
    "code": "import math\ndef volume_sphere(r):\n  return (4/3)*math.pi*r*r*r",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(volume_sphere(10), 4188.790204786391, rel_tol=0.001)"],
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "from typing import List\n\n\ndef first(numbers: List[int]) -> int:\n"
    '    """The first number."""\n',
    "canonical_solution": "    return numbers[0]\n",
    "test": "def check(candidate):\n    assert candidate([3, 1]) == 3\n",
    "entry_point": "first",
}
FUNCTION = {"question": "Write double(x).", "test_method": "function", "test_time_limit": 1}
FUNCTION |= {"test_list": ["assert double(2) == 4", "assert FACTOR == 2"], "prefix": "FACTOR = 2"}
STDIO = {"question": "Print the sum of two numbers.", "test_method": "stdio", "test_time_limit": 1}
STDIO |= {"test_input": ["1 2\n", "3 4\n"], "test_output": ["3\n", "7\n"]}


def read(folder: Path, row: dict[str, Any], name: str) -> Prompt:
    (folder / "rows.json").write_text(json.dumps([row]), encoding="utf-8")
    (prompt,) = load_prompts(str(folder / "rows.json"), "text", DataConfig(format=name))
    return prompt


def score(prompt: Prompt, completion: str, **reward: Any) -> float | None:
    metadata = prompt.facts
    (found,) = build_reward(reward)([Sample(prompt.text, completion, metadata)])
    return found


@pytest.mark.parametrize(
    ("name", "row", "text", "answer"),
    [
        ("gsm8k", GSM8K, GSM8K["question"], "10"),
        ("math", MATH, MATH["problem"], "16"),
        ("r1_v", {"problem": "How many?", "solution": "<answer> 3 </answer>"}, "How many?", "3"),
        ("numina_lean", NUMINA, "How many even primes are there?", "1"),
        ("dllm_rl", {"question": "1+1?", "ground_truth_answer": "2", "level": 3}, "1+1?", "2"),
    ],
)
def test_math_sets_keep_the_bare_answer_and_no_solution(
    tmp_path: Path, name: str, row: dict, text: str, answer: str
) -> None:
    prompt = read(tmp_path, row, name)
    assert (prompt.text, prompt.answer) == (text, answer)
    assert not {"solution", "formal_statement", "formal_proof"} & prompt.metadata.keys()
    assert score(prompt, f"\\boxed{{{answer}}}", name="math") == 1.0
    assert score(prompt, "\\boxed{77}", name="math") == 0.0


def test_a_numina_lean_proof_is_refused_with_the_setting_that_leaves_it_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="entry [01].*data.where on question_type"):
        read(tmp_path, {**NUMINA, "answer": "proof"}, "numina_lean")


def test_gold_code_of_every_set_passes_its_tests_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    gold = [
        ("mbpp", MBPP, MBPP["code"]),
        ("mbpp", SANITIZED, SANITIZED["code"]),
        ("humaneval", HUMANEVAL, HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"]),
        ("humaneval", HUMANEVAL, "def first(numbers: List[int]):\n    return numbers[0]"),
        ("dllm_rl", FUNCTION, "def double(x):\n    return FACTOR * x"),
        ("dllm_rl", STDIO, "print(sum(map(int, input().split())))"),
    ]
    for name, row, code in gold:
        prompt = read(tmp_path, row, name)
        fenced, settings = f"```python\n{code}\n```", {"name": "code", "isolation": "process"}
        assert score(prompt, fenced, **settings) == 1.0, (name, row)
        wrong = fenced.replace("return", "return None and").replace("print(", "print(1 + ")
        assert score(prompt, wrong, **settings) == 0.0, (name, row)


def test_a_prefix_of_dllm_rl_that_opens_a_block_begins_the_completion(tmp_path: Path) -> None:
    prefix = "Here it is:\n```python\ndef double(x):\n"
    prompt = read(
        tmp_path, {**FUNCTION, "prefix": prefix, "test_list": ["assert double(2) == 4"]}, "dllm_rl"
    )
    assert prompt.prefill == prefix and not {"setup", "assistant_prefill"} & set(prompt.metadata)
    for body, right in (("    return 2 * x\n```", 1.0), ("    return x\n```", 0.0)):
        # the policy gives rewards the prefill and what it has written
        found = score(prompt, prompt.prefill + body, name="code", isolation="process")
        assert found == right


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("d1_countdown", {"input": "30,100,93", "output": "23"}),
        ("countdown", {"nums": [30, 100, 93], "target": 23}),
    ],
)
def test_both_countdown_files_of_d1_are_scored(tmp_path: Path, name: str, row: dict) -> None:
    prompt = read(tmp_path, row, name)
    assert prompt.text == "Numbers: [30, 100, 93]\nTarget: 23"
    assert score(prompt, "<answer>30-(100-93)</answer>", name="countdown") == 1.0
    assert score(prompt, "<answer>30-93+100</answer>", name="countdown") == 0.0


def test_d1s_sudoku_csv_keeps_its_leading_zeros(tmp_path: Path) -> None:
    path = tmp_path / "4x4.csv"
    path.write_text("Puzzle,Solution\n0140432014020000,2143432114323214\n")
    (prompt,) = load_prompts(str(path), "text", DataConfig(format="d1_sudoku"))
    assert prompt.metadata == {"puzzle": "0140432014020000", "solution": "2143432114323214"}
    assert score(prompt, "<answer>2143432114323214</answer>", name="sudoku") == 1.0


def read_pictured(folder: Path, row: dict[str, Any], name: str) -> Prompt:
    (folder / "SEEDBench_IMG").mkdir()
    Image.new("RGB", (6, 4), "red").save(folder / "SEEDBench_IMG" / "0.jpg")
    (folder / "rows.json").write_text(json.dumps([row]), encoding="utf-8")
    data = DataConfig(format=name, image_root=str(folder))
    (prompt,) = load_prompts(str(folder / "rows.json"), "image_to_text", data)
    assert prompt.images is not None and [image.size for image in prompt.images] == [(6, 4)]
    return prompt


@pytest.mark.parametrize("key", ["image", "image_path", "image_abs_path"])
def test_dllm_rls_supervised_rows_have_completion_order_and_image(tmp_path: Path, key: str) -> None:
    path = "SEEDBench_IMG/0.jpg"
    row = {key: str(tmp_path / path) if key == "image_abs_path" else path, "prompt": "How many?"}
    row |= {"response": "One.<|eot_id|><|endoftext|>", "step_map": [1, 0]}
    prompt = read_pictured(tmp_path, row, "dllm_rl_sft")
    assert (prompt.text, prompt.messages) == ("How many?", None)
    assert prompt.metadata == {"completion": "One.", "order": [1, 0]}


def test_a_trace_of_s1k_is_asked_for_and_answered_in_tags(tmp_path: Path) -> None:
    row = {"question": "1+1?", "thinking_trajectories": ["two", "2"], "attempt": "It is 2."}
    prompt = read(tmp_path, row, "s1k")
    assert prompt.text.endswith("<answer>\n...\n</answer>\n\n\n1+1?")
    completion = "<reasoning>two</reasoning>\n<answer>It is 2.</answer>"
    assert prompt.metadata == {"completion": completion}


@pytest.mark.parametrize(
    ("turn", "end"),
    [
        ("<|start_header_id|>{}<|end_header_id|>\n{}<|eot_id|>", "<|eot_id|>"),
        ("<|im_start|>{}\n{}<|im_end|>\n", "<|im_end|>\n"),
    ],
    ids=["llada", "qwen2"],
)
def test_a_templated_prompt_of_dllm_rl_becomes_its_messages_again(
    tmp_path: Path, turn: str, end: str
) -> None:
    text = "<|startoftext|>" + turn.format("system", "Be brief.") + turn.format("user", "1+1?")
    text += turn.format("assistant", "").partition("assistant")[0] + "assistant\n"
    prompt = read(tmp_path, {"prompt": text, "response": f"2{end}"}, "dllm_rl_sft")
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    assert prompt.messages == turns
    assert (prompt.text, prompt.metadata) == ("1+1?", {"completion": "2"})


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("r1_v", {"problem": "x", "solution": "3"}, "entry 0: solution has no filled <answer>"),
        ("gsm8k", {"question": "x", "answer": "10"}, "entry 0: answer has nothing after '####'"),
        ("math", {"problem": "x", "solution": "16"}, "no answer, and no box in solution"),
        ("humaneval", {**HUMANEVAL, "entry_point": "last"}, "does not define 'last'"),
        ("dllm_rl", {**FUNCTION, "test_method": "magic"}, "'magic'; allowed: function, stdio"),
        ("s1k", {"question": "x", "attempt": "y"}, "no 'thinking_trajectories', which data.format"),
        ("countdown", {"nums": [3.7, 2], "target": 5}, r"nums\[0\] is 3\.7; .* whole number"),
    ],
)
def test_a_row_that_its_format_cannot_read_is_named(
    tmp_path: Path, name: str, row: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, row, name)


def test_rows_of_unirl_have_their_media_ids_and_folded_metadata(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "source.png")
    medium = {"modality": "image", "role": "source", "uri": "source.png"}
    row = {"prompt_id": "p7", "caption": "make it red", "media_refs": [medium]}
    path = tmp_path / "rows.jsonl"

    def read(**more: Any) -> Prompt:
        path.write_text(json.dumps({**row, **more}))
        return load_prompts(str(path), "image_edit", DataConfig(format="unirl"))[0]

    prompt = read(metadata={"target_text": "a red cat"}, score=1)
    assert (prompt.id, prompt.text) == ("p7", "make it red")
    assert prompt.metadata == {"target_text": "a red cat", "score": 1}
    assert prompt.image_sizes == [(4, 4)]
    for more, named in (
        ({"prompt_embeds": [0.1]}, "prompt_embeds.*encoded once"),
        ({"media_refs": [{**medium, "role": "pose"}]}, "role of 'source.png' is 'pose'.*source"),
        ({"media_refs": [{**medium, "modality": "audio"}]}, "is audio; prompts give images"),
        ({"media_refs": [{**medium, "uri": "s3://b/source.png"}]}, "not downloaded"),
        ({"media_refs": ["source.png"]}, "no medium"),
        ({"metadata": "a"}, "metadata is str"),
        ({"caption": ""}, "has no 'prompt'"),
    ):
        with pytest.raises(ConfigError, match=f"line 1.*{named}"):
            read(**more)


@pytest.mark.parametrize("content", [["a cat", "a dog"], {"prompts": ["a cat", "a dog"]}])
def test_lists_of_texts_are_prompts(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(content))
    prompts = load_prompts(str(path), "text_to_image")
    assert [prompt.text for prompt in prompts] == ["a cat", "a dog"]
