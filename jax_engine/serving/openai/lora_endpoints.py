"""`/v1/load_lora_adapter` and `/v1/unload_lora_adapter`, with vLLM's names and fields."""

from fastapi import FastAPI
from pydantic import Field
from starlette.responses import PlainTextResponse, Response

from jax_engine.serving.openai.adapters import LoRAModule
from jax_engine.serving.openai.errors import ApiError, api_error
from jax_engine.serving.openai.request_fields import Fields
from jax_engine.serving.openai.service import Service


class LoadRequest(Fields):
    """An adapter that is to be offered."""

    lora_name: str = ""
    lora_path: str = Field("", description="a folder or a GGUF file of the server's machine")
    load_inplace: bool = False


class UnloadRequest(Fields):
    """An adapter that is not to be offered any more."""

    lora_name: str = ""
    lora_int_id: int | None = None


def add_lora_endpoints(app: FastAPI, service: Service) -> None:
    """Adds them. Who may call them can have any file of this machine read as an adapter."""

    @app.post("/v1/load_lora_adapter")
    async def load(body: LoadRequest) -> Response:
        name, path = body.lora_name, body.lora_path
        if not name or not path:
            raise _invalid("Both 'lora_name' and 'lora_path' must be provided.")
        try:
            new = await service.adapters.load(LoRAModule(name, path), inplace=body.load_inplace)
        except Exception as error:
            raise api_error(error, sorted(LoadRequest.model_fields)) from error
        if not new:
            raise _invalid(
                f"The lora adapter '{name}' has already been loaded. If you want to load the "
                "adapter in place, set 'load_inplace' to True."
            )
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    @app.post("/v1/unload_lora_adapter")
    async def unload(body: UnloadRequest) -> Response:
        name = body.lora_name
        if not name:
            raise _invalid("'lora_name' needs to be provided to unload a LoRA adapter.")
        if not await service.adapters.unload(name):
            message = f"The lora adapter '{name}' cannot be found."
            raise ApiError(404, message, param="lora_name", code="model_not_found")
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")


def _invalid(message: str) -> ApiError:
    return ApiError(400, message, param="lora_name")
