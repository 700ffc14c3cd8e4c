"""A language model plays, over the chat protocol that most servers offer (vLLM, llama.cpp, Ollama, providers).

OPENAI_BASE_URL=http://localhost:8000/v1 MODEL=name python language_model.py [GAME] [--free]
--free: the model may type anything, and is not told the valid actions.
"""

import json
import os
import sys
import urllib.error
import urllib.request

import xtx

STEPS, REMEMBERED = 30, 20
BASE = os.environ.get("OPENAI_BASE_URL", "http://localhost:8000/v1")
RULES = "You play a text adventure and want as many points as possible. Answer with one short command and nothing else."


def ask(messages: list[dict[str, str]]) -> str:
    """The model's answer to a conversation: its first line."""
    body = {"model": os.environ.get("MODEL", "default"), "messages": messages, "max_tokens": 30, "temperature": 0}
    key = os.environ.get("OPENAI_API_KEY", "none")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{BASE}/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            answer = json.load(reply)["choices"][0]["message"]["content"]
    except urllib.error.URLError as error:
        sys.exit(f"no answer from {BASE}: {error.reason}; OPENAI_BASE_URL names another server")
    return (answer.strip().splitlines() or ["look"])[0].strip("> .")


free = "--free" in sys.argv
names = [word for word in sys.argv[1:] if not word.startswith("--")]
with xtx.make(*names[:1], valid_actions=not free) as game:
    seen, talk = game.reset(), []
    while not game.is_over and seen.step < STEPS:
        told = seen.text if free else f"{seen.text}\n\nPossible commands: {'; '.join(seen.actions)}"
        talk = [*talk, {"role": "user", "content": told}][-REMEMBERED:]
        command = ask([{"role": "system", "content": RULES}, *talk])
        talk.append({"role": "assistant", "content": command})
        step = game.step(command)
        seen = step.observation
        print(f"> {command} ({step.reward:+d})\n{seen.text}\n")
    print(f"{game.score} of {game.max_score} points in {seen.step} steps")
