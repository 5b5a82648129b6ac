"""Alarms before a promotion: exploits of the reward, answers without their evidence, metrics that may not fall."""
