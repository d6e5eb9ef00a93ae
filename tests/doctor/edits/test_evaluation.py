from helpers.observations import finding


def test_results_of_an_evaluation_are_copied_once(suggested):
    text = (
        "for x in loader:\n    outputs.append(model(x).argmax(1).detach().cpu().numpy())\n"
        "result = np.concatenate(outputs, axis=0)\n"
    )
    made = suggested(text, finding("evaluation", "train.py:2"))
    assert "outputs.append(model(x).argmax(1))" in made
    assert "result = torch.cat(outputs, dim=0).detach().cpu().numpy()" in made
    assert suggested(text + "print(outputs)\n", finding("evaluation", "train.py:2")) is None
