import sys, numpy as np, traceback
from pathlib import Path
from jax_engine.models.load import load_model
from tests.models.paged import PagedRun
OUT=Path('/work/scratch/parity/out')
PROMPT=[(7*i*i+3*i+5)%61 for i in range(24)]
for d in sorted(OUT.iterdir()):
    if sys.argv[1:] and d.name not in sys.argv[1:]: continue
    if not (d/'logits.npy').exists(): continue
    try:
        m=load_model(str(d)); run=PagedRun(m.config,m.graphdef,m.params)
        got=np.concatenate([run.feed(PROMPT[:15]),run.feed(PROMPT[15:])]); want=np.load(d/'logits.npy')
        err=np.abs(got-want).max()/np.abs(want).max()
        print(f"{d.name:20} {err:.2e} {'ok' if err<1e-5 else 'WRONG'}",flush=True)
    except Exception as e:
        print(f"{d.name:20} {type(e).__name__}: {str(e)[:300]}",flush=True)
