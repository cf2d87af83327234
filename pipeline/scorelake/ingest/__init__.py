"""Read the logs of evaluation tools into a lake of attempts. Each format has one adapter in formats/."""
