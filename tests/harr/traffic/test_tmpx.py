from dataclasses import replace
import numpy as np, torch
import importlib.util, pathlib
spec = importlib.util.spec_from_file_location("tr", pathlib.Path(__file__).with_name("test_replay.py")); tr = importlib.util.module_from_spec(spec); spec.loader.exec_module(tr)
from harr.traffic.replay import replay

def test_x(setup):
    for temp in (0.03, 0.04):
        for rounds in (6, 12):
            tr.ROUNDS = rounds
            hits = {}
            for seed in range(12):
                setup.retriever.sampling.manual_seed(seed)
                searches, outcomes = tr.logged(setup)
                cand = replace(setup.retriever, temperature=temp)
                gold = {f"{q.text} {n}": set(q.gold_ids) for q in setup.questions for n in range(rounds)}
                chances = []
                for one in searches:
                    rows = cand.passages.rows_of(one.pool)
                    pool = np.array([[rows[pid] for pid in one.pool]])
                    state = torch.from_numpy(cand.encode([one.state]))
                    first = cand.logits(state, torch.tensor([0]), pool).softmax(-1)[0]
                    chances.append(sum(float(p) for p, pid in zip(first, one.pool) if pid in gold[one.question]))
                truth = float(np.mean(chances))
                found = replay(cand, searches, outcomes)
                for n, o in found.found.items():
                    hits[n] = hits.get(n, 0) + (o.low <= truth <= o.high)
            print(temp, rounds, hits, truth, found.served[0], o, found.effective, found.rows)
