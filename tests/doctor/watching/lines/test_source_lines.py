import textwrap
from types import SimpleNamespace

from brim.doctor.watching.lines.source_lines import line_of, loop_lines, shown, text_of, users_place


def lines_of(tmp_path, source, step, forward, function=None):
    """The text of lines that are said to be heads, data and training, by parts of the step's and the model's line."""
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(source))
    code = compile(file.read_text(), str(file), "exec")
    if function:
        code = next(c for c in _codes(code) if c.co_name == function)
    texts = file.read_text().splitlines()
    at = {part: next(i for i, text in enumerate(texts, 1) if part in text) for part in (step, forward)}
    found = loop_lines(code, at[step], at[forward])
    return [{texts[line - 1].strip() for line in part} for part in (found.heads, found.data, found.training)]


def _codes(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from _codes(constant)


def test_a_plain_loop(tmp_path):
    heads, data, training = lines_of(
        tmp_path,
        """
        for x, y in loader:
            x = x.float()
            logits = model(x)
            loss = cost(logits, y)
            loss.backward()
            optimizer.step()
            print(loss.item())
            hits = (logits.argmax(1) == y).sum()
            total += hits
        """,
        "optimizer.step", "model(x)",
    )  # fmt: skip
    assert heads == {"for x, y in loader:"} and data == {"x = x.float()"}
    assert training == {"logits = model(x)", "loss = cost(logits, y)", "loss.backward()", "optimizer.step()"}


def test_weights_that_are_updated_by_hand(tmp_path):
    updates = ["w -= 0.1 * w.grad", "b.data = b - 0.1 * b.grad", "v.data.add_(v.grad, alpha=-1)", "w.grad.zero_()",
               "b.grad = None"]  # fmt: skip
    looks = ["norm += w.grad.norm()", "norms.append(w.grad.norm().item())", "sizes[0] = w.grad.numel()"]
    body = "\n".join(f"    {line}" for line in [*updates, *looks])
    _, _, training = lines_of(
        tmp_path,
        f"for x in loader:\n    loss = model(x).mean()\n    loss.backward()\n{body}",
        "loss.backward", "model(x)",
    )  # fmt: skip
    assert training == {"loss = model(x).mean()", "loss.backward()", *updates}


def test_a_batch_that_is_made_after_the_model_was_called(tmp_path):
    _, data, training = lines_of(
        tmp_path,
        """
        def train():
            x = get_batch()
            while True:
                loss = model(x).mean()
                x = get_batch()
                loss.backward()
                optimizer.step()
        """,
        "optimizer.step", "model(x)", "train",
    )  # fmt: skip
    assert data == {"x = get_batch()"} and "loss.backward()" in training


def test_a_method_without_a_loop(tmp_path):
    heads, data, training = lines_of(
        tmp_path,
        """
        class Trainer:
            def step(self, batch):
                batch = move(batch)
                loss = self.model(batch)
                loss.backward()
                self.optimizer.step()
                self.log(loss)
                return loss
        """,
        "optimizer.step", "self.model", "step",
    )  # fmt: skip
    assert heads == set() and data == {"batch = move(batch)"}
    assert "self.log(loss)" not in training and "loss = self.model(batch)" in training


def test_source_that_cannot_be_read_has_no_lines():
    code = compile("for x in y: step()", "<string>", "exec")
    assert loop_lines(code, 1, 1).heads == frozenset()


def test_the_users_line_is_this_one():
    place = users_place()
    assert shown(place).startswith("test_source_lines.py:") and text_of(place) == "place = users_place()"
    assert shown(None) == text_of(None) == ""


def test_a_line_that_is_not_there_has_no_text():
    assert text_of((__file__, 10_000)) == ""


def test_an_instruction_that_python_added_is_on_the_line_before_it():
    code = compile("first()\nsecond()\n", "train.py", "exec")
    at = {line: start for start, _, line in code.co_lines()}
    assert line_of(SimpleNamespace(f_lineno=None, f_code=code, f_lasti=at[2] + 2)) == 2
    assert line_of(SimpleNamespace(f_lineno=None, f_code=code, f_lasti=-1)) == code.co_firstlineno
    assert line_of(SimpleNamespace(f_lineno=7, f_code=code, f_lasti=0)) == 7


def test_what_goes_into_the_loss_past_the_model(tmp_path):
    """Targets and a teacher's answer are made like a batch; a penalty of the weights is training, a count neither."""
    _, data, training = lines_of(
        tmp_path,
        """
        def step(self, x):
            with torch.no_grad():
                soft = self.teacher(x)
            y = draw_targets()
            logits = self.student(x)
            penalty = sum(weight.square().sum() for weight in self.student.parameters())
            kd = divergence(logits, soft)
            loss = kd + cost(logits, y) + penalty
            loss.backward()
            self.optimizer.step()
            self.seen += len(y)
            return loss, self.seen
        """,
        "optimizer.step", "self.student(x)", "step",
    )  # fmt: skip
    assert data == {"soft = self.teacher(x)", "y = draw_targets()"}
    assert "penalty = sum(weight.square().sum() for weight in self.student.parameters())" in training
    assert "self.seen += len(y)" not in training


def test_a_batch_that_is_kept_in_self_by_one_method_and_used_by_another(tmp_path):
    _, data, training = lines_of(
        tmp_path,
        """
        class Base:
            def run(self):
                while True:
                    self.next_batch()
                    self.update()
                    self.after_update()

        class Runner(Base):
            def next_batch(self):
                self.x = load()

            def update(self):
                self.loss = self.cost()
                self.loss.backward()

            def cost(self):
                return self.net(self.x).mean()

            def after_update(self):
                self.losses.append(self.loss.item())
        """,
        "self.update()", "self.update()", "run",
    )  # fmt: skip
    assert data == {"self.next_batch()"} and training == {"self.update()"}


def test_a_batch_that_is_handed_to_a_model_that_steps_by_itself(tmp_path):
    heads, data, training = lines_of(
        tmp_path,
        """
        for batch in loader:
            model.zero()
            model.set_input(batch)
            model.optimize_parameters()
            model.show(visualizer)
            visualizer.draw(model)
        """,
        "model.optimize", "model.optimize",
    )  # fmt: skip
    assert heads == {"for batch in loader:"}
    assert data == {"model.set_input(batch)"} and training == {"model.optimize_parameters()"}


def test_backward_passes_in_methods_of_any_name(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(
        textwrap.dedent(
            """
            class Model:
                def optimize(self):
                    self.forward()
                    self.descend_D()
                    self.descend_G()
                    self.optimizer.step()

                def descend_G(self):
                    self.loss = (self.fake - self.real).abs().mean()
                    self.norm = self.fake.norm().item()
                    self.loss.backward()
            """
        )
    )
    codes = {code.co_name: code for code in _codes(compile(file.read_text(), str(file), "exec"))}
    assert loop_lines(codes["optimize"], 7, 4, frozenset({5, 6})).training == {4, 5, 6, 7}
    assert loop_lines(codes["descend_G"], 12, None, frozenset({12})).training == {10, 12}


def test_a_loop_that_asks_for_batches_in_its_condition(tmp_path):
    heads, data, training = lines_of(
        tmp_path,
        """
        while (batch := feed.get()) is not None:
            model(batch).mean().backward()
            optimizer.step()
        """,
        "optimizer.step", "model(batch)",
    )  # fmt: skip
    assert heads == {"while (batch := feed.get()) is not None:"} and data == set()
    assert training == {"model(batch).mean().backward()", "optimizer.step()"}
