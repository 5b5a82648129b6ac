-- PostgreSQL runs this once, in an empty data folder. The database of Prefect is made by POSTGRES_DB.
CREATE DATABASE mlflow;
