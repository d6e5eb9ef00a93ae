from brim.integrations.lightning.trainer.watched_profiler import WatchedProfiler


class Profiler:
    def __init__(self):
        self.told = []

    def start(self, name):
        self.told.append(("start", name))

    def stop(self, name):
        self.told.append(("stop", name))

    def summary(self):
        return "summary"


def test_the_profiler_hears_everything_and_the_reading_is_told_apart():
    heard, inner = [], Profiler()
    watched = WatchedProfiler(inner, lambda: heard.append("asks"), lambda: heard.append("has"))
    with watched.profile("[_TrainingEpochLoop].train_dataloader_next"):
        heard.append("reads")
    with watched.profile("run_training_batch"):
        pass
    assert heard == ["asks", "reads", "has"] and len(inner.told) == 4 and watched.summary() == "summary"
