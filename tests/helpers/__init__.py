"""What tests of several rooms share. Nothing here asserts what a test's name promises; tests do that themselves."""
