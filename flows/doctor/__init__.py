"""What `harr doctor` and `harr status` know: checks that read and never write, and load nothing heavy.

Every check is a plain function that returns findings. No library of a service is imported: versions come from
package metadata, MLflow's runs from its database or REST interface, DVC's state from dvc.lock.
"""
