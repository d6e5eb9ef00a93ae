"""A trained recommender in use: rankings for people and items, known or new, files of them, and saved models.

A model and a data set come in; item ids with scores go out.
"""
