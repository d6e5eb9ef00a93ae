"""The recommender from Python: python examples/recommender.py"""

from brim import Trainer
from brim.workloads.recommender import BPR, EmbeddedDataset, EvalDataLoader, Popularity, TrainDataLoader

dataset = EmbeddedDataset(split_ratio=[0.8, 0.1, 0.1])
train_data, valid_data, test_data = (dataset.get_split_data(s) for s in ("train", "validation", "test"))
model = BPR(n_users=dataset.get_user_num(), n_items=dataset.get_item_num(), embed_dim=64)
train_loader = TrainDataLoader(train_data, batch_size=2048, shuffle=True, device="cuda")
valid_loader = EvalDataLoader(valid_data, train_data, batch_size=2048, device="cuda")
test_loader = EvalDataLoader(test_data, train_data, batch_size=2048, device="cuda", also_mask=valid_data)
trainer = Trainer(model, train_loader, valid_loader, test_loader, device="cuda", epochs=40, lr=5e-3, patience=5)
print("BPR       ", trainer.fit(save_model=True, model_path="model.pth").metrics)
print("popularity", test_loader.evaluate(Popularity(train_data)))
