import sys, warnings, tempfile, pathlib, logging
warnings.filterwarnings("ignore")
sys.path.insert(0, "tests")
import torch
from torch import nn
import brim
import capture_models as cm
from capture_proof import attempt, clean
from brim.engine.captured.cudnn_dropout import cudnn_dropout_state, NAME
import importlib.util
spec = importlib.util.spec_from_file_location("troom", "tests/conftest.py"); troom = importlib.util.module_from_spec(spec); sys.modules["troom"] = troom; spec.loader.exec_module(troom)
T = troom.Twins(pathlib.Path(tempfile.mkdtemp()))

m = cm.Forecaster(64, 2, 0.5).cuda(); x = torch.randn(4, 30, 16, device="cuda")
loss = m(x).sum()
fn = loss.grad_fn; seen=[]
todo=[fn]
while todo:
    n=todo.pop()
    if n is None: continue
    if "Cudnn" in type(n).__name__:
        print(type(n).__name__, [a for a in dir(n) if "dropout" in a]); seen.append(n)
    todo += [p for p,_ in n.next_functions]
r = torch.cuda.get_rng_state().clone()
s = cudnn_dropout_state(m, torch.device("cuda", 0))
print("state", {k:(v.shape, v.dtype, v.device) for k,v in s.items()}, "rng kept", torch.equal(r, torch.cuda.get_rng_state()))
st = s[NAME]
kept = st.clone(); s2 = cudnn_dropout_state(m, torch.device("cuda",0))[NAME]
print("same memory", s2.data_ptr()==st.data_ptr(), "unmoved", torch.equal(kept, st))
a = m(x); moved = not torch.equal(kept, st); st.copy_(kept); b = m(x); c = m(x)
print("moved by a call", moved, "rewound gives the same", torch.equal(a,b), "other", torch.equal(b,c))

def run(how, make, batches, loss_fn, state=None, **kw):
    if state is not None: st.copy_(state)
    f = T.step_through(make, batches, how, loss_fn=loss_fn, **kw)
    return f
bt = [tuple(t.cuda() for t in cm.series(n,128)) for n in range(8)]*3
for p in ("32","bf16"):
    e = run("off", lambda: cm.Forecaster(64,2,0.3), bt, cm.squared_error, kept, precision=p); end=st.clone()
    k = run("require", lambda: cm.Forecaster(64,2,0.3), bt, cm.squared_error, kept, precision=p)
    print("LSTM dropout", p, k.report.captured, k.report.replays, "apart", k.differs_from(e), k.equals(e), "cudnn state same at the end", torch.equal(end, st)); clean()

for mul in (1.0, 1e5):
    lf = lambda mo, b: cm.masked_loss(mo, b) * mul
    mb = [{n: t.cuda() for n,t in cm.masked_batch(i).items()} for i in range(12)]
    try:
        e = run("off", cm.Masked, mb, lf, precision="fp16"); k = run("require", cm.Masked, mb, lf, precision="fp16")
        print("fp16 times", mul, k.report.captured, k.report.replays, k.differs_from(e), k.equals(e))
    except Exception as err: print("fp16", mul, type(err).__name__, str(err)[:300])

vit = cm.language_models("tiny")["ViT"]
mk = lambda mo: torch.optim.AdamW(mo.parameters(), lr=2.0**-10, fused=True)
sg = lambda mo: torch.optim.SGD(mo.parameters(), lr=2.0**-10)
for det in (False, True):
    torch.backends.cudnn.deterministic = det
    for on, opt in (("AdamW", mk), ("SGD", sg)):
        b = vit.batches()*2
        es = [run("off", vit.make, b, vit.loss, precision="bf16", optimizer=opt) for _ in range(3)]
        k = run("require", vit.make, b, vit.loss, precision="bf16", optimizer=opt)
        print("ViT bf16", on, "deterministic" if det else "", "eager/eager", es[1].differs_from(es[0]), es[2].differs_from(es[0]), "captured/eager", k.differs_from(es[0]), {n: f"{(q-w).norm()/w.norm():.1e}" for (n,q),(_,w) in zip(k.model.state_dict().items(), es[0].model.state_dict().items()) if not torch.equal(q,w)} .__str__()[:300])
torch.backends.cudnn.deterministic = False
import transformers as hf
enc = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
nopad = cm.Model(lambda: hf.BertForSequenceClassification(hf.BertConfig(**enc)), cm.own_loss, lambda n: cm.text_batch(n, 8, 32, 30000, False, 2))
for p in ("32","bf16"):
    mo = nopad.make().cuda()
    print("BERT no padding", p, attempt(mo, nopad.loss, nopad.batches(), torch.optim.AdamW(mo.parameters(), 1e-4, fused=True), p))
