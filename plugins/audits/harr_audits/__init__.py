"""Alarms before a promotion: exploits of the reward, answers without evidence, metrics that may not fall."""
