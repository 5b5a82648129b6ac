# %% [markdown]
# # A tour of harr
#
# From an empty folder to a served model, in a very small world: about two minutes on two cores.
# `python examples/tour.py` runs it, and `jupytext --to ipynb examples/tour.py` makes a notebook.

# %%
import json
import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path

from mlflow import MlflowClient
from ruamel.yaml import YAML


def sh(command: str) -> None:
    """Show a command and run it, as you would in a terminal."""
    print(f"\n$ {command}", flush=True)
    subprocess.run(command, shell=True, check=True)


# %% [markdown]
# ## A project
#
# `harr init` makes the folder `tour` with all stages, and `params.yaml` holds every setting.
# We shrink the smallest recipe: 200 passages about people who do not exist, and few questions.

# %%
sh("harr init tour")
os.chdir("tour")
yaml, settings = YAML(), Path("params.yaml")
params = yaml.load(Path("recipes/smoke.yaml"))
params["download"]["settings"].update(passages=200, train_questions=24, test_questions=16, hops=[2])
params["filter"].update(target=8, batch_size=12)
params["evaluate"].update(arms=["bm25", "frozen", "last_answer", "trained"])
params["tracking"].update(registered_model="tour")
yaml.dump(params, settings)

# %% [markdown]
# ## Train
#
# `dvc repro` runs the stages: it makes the passages, their vectors and a search index, chooses
# questions, trains the query encoder on them, and compares it with other systems on test questions.
# What is up to date does not run again.

# %%
sh("dvc repro --quiet")

# %% [markdown]
# ## Look
#
# Each line of the table is a system, and `trained` is the one that learnt by reward; the page has curves
# and examples. So few questions show that everything works, but not how well.

# %%
sh("harr report")

# %% [markdown]
# ## Train once more
#
# After a change of `train.steps` DVC repeats only the training and what depends on it.
# MLflow's registry then has two models, version 1 and version 2.

# %%
params["train"]["steps"] = 4
yaml.dump(params, settings)
sh("dvc repro --quiet")

# %% [markdown]
# ## Serve
#
# `harr serve` answers with the version that has the alias `champion`. We give it to version 1 by
# hand; `harr promote` gives it to a model that is surely better than the one before.

# %%
registry = MlflowClient("sqlite:///mlflow.db")
registry.set_registered_model_alias("tour", "champion", "1")
server = subprocess.Popen(["harr", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
line = server.stdout.readline()  # printed once it answers
page = re.search(r"http://\S+", line)[0]
print(line)


def ask(path: str, **body: object) -> dict:
    """Return the server's answer."""
    request = urllib.request.Request(page + path, json.dumps(body).encode() if body else None)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


question = json.loads(Path("data/questions/test.jsonl").read_text().splitlines()[0])["question"]
found = ask("/search", question=question, query=question)
print(question, *(f"  {passage['text']}" for passage in found["passages"]), sep="\n")

# %% [markdown]
# ## Swap
#
# The alias moves to version 2, and within seconds the server answers with it; nobody has to wait.
# Moving it back is just as quick, because both use the same passages and index.

# %%
registry.set_registered_model_alias("tour", "champion", "2")
while ask("/health")["version"] != "2":
    time.sleep(0.2)
print("now version", ask("/search", question=question, query=question)["version"], "answers")
server.terminate()
server.wait()
