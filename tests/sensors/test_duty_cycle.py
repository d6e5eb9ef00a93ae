from brim.sensors.duty_cycle import DutyCycleSensor


class Source:
    name = "a test"

    def __init__(self, *duty_cycles):
        self.duty_cycles, self.is_closed, self.questions = duty_cycles, False, 0

    def utilization(self):
        self.questions += 1
        return [(f"GPU-{place}", duty) for place, duty in enumerate(self.duty_cycles)]

    def close(self):
        self.is_closed = True


def test_it_is_of_the_gpu_that_torch_means(monkeypatch):
    source = Source(10, 20, 30)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    assert DutyCycleSensor(0, lambda: source).read() == 30
    assert DutyCycleSensor(1, lambda: source).read() == 20


def test_one_connection_serves_all_questions_and_is_closed(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    made = []
    sensor = DutyCycleSensor(0, lambda: made.append(Source(50)) or made[-1])
    assert [sensor.read(), sensor.read()] == [50, 50] and len(made) == 1
    sensor.close()
    assert made[0].is_closed and sensor.read() is None


def test_who_does_not_answer_is_not_asked_again():
    def no_driver():
        asked.append(1)
        raise OSError("no driver")

    asked = []
    sensor = DutyCycleSensor(0, no_driver)
    assert [sensor.read(), sensor.read()] == [None, None] and len(asked) == 1
    sensor.close()
    silent = Source(None)
    sensor = DutyCycleSensor(0, lambda: silent)
    assert [sensor.read(), sensor.read()] == [None, None] and silent.questions == 1
